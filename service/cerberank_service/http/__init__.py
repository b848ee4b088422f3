"""The HTTP layer: routes, bodies with their limits, error responses, headers, OpenAPI, pages."""
