# The CPU service: ONNX Runtime, no torch. A later stage of the project adds the GPU image.
FROM python:3.11-slim
RUN useradd --create-home --uid 10001 cerberank
WORKDIR /app
COPY requirements/serve.txt requirements/serve.txt
RUN pip install --no-cache-dir --requirement requirements/serve.txt
COPY pyproject.toml README.md LICENSE ./
COPY models models
COPY service service
RUN pip install --no-cache-dir --no-deps --editable .
USER cerberank
ENV CERBERANK_HOST=0.0.0.0
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=2s --start-period=30s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health/ready')"]
CMD ["cerberank", "serve"]
