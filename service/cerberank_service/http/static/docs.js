// Shows the service's OpenAPI document in Swagger UI, in the browser's colours.
"use strict";

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const paint = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", paint);
paint();
// Everything is folded but the operation that most users need.
if (!window.location.hash) window.history.replaceState(null, "", "#/cerberank/rank");
window.SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  validatorUrl: null,
  deepLinking: true,
  docExpansion: "none",
  defaultModelsExpandDepth: -1,
});
