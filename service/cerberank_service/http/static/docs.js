// Shows the service's OpenAPI document in Swagger UI.
"use strict";

window.SwaggerUIBundle({ url: "openapi.json", dom_id: "#swagger-ui", validatorUrl: null, deepLinking: true });
