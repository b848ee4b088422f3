"""What HTTP needs beside the routes: bodies and their limits, error responses, headers, OpenAPI, pages."""
