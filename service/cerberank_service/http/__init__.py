"""The HTTP layer: routes, bodies and their limits, error responses, headers, OpenAPI, pages."""
