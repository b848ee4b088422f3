# Two images of one service. `docker build --target cpu .` (also without --target): ONNX Runtime, no torch, the bundled
# checkpoint. `docker build --target gpu .`: PyTorch on CUDA; mount a checkpoint folder at /checkpoints/current.
# `make image-check` runs every command of both without Docker, `make check` lints.
FROM python:3.11.13-slim-bookworm AS python

FROM python AS wheel
WORKDIR /source
COPY requirements/build.txt requirements/
RUN pip install --no-cache-dir --requirement requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY models/cerberank_models models/cerberank_models
COPY service/cerberank_service service/cerberank_service
RUN python -m hatchling build --target wheel --directory /wheel

FROM python AS cpu-environment
COPY requirements/serve.txt /requirements/
RUN python -m venv /opt/cerberank && \
    /opt/cerberank/bin/pip install --no-cache-dir --requirement /requirements/serve.txt
COPY --from=wheel /wheel /wheel
RUN /opt/cerberank/bin/pip install --no-cache-dir --no-deps --no-index --find-links /wheel cerberank

FROM python AS gpu-environment
COPY requirements/gpu.txt /requirements/
RUN python -m venv /opt/cerberank && \
    /opt/cerberank/bin/pip install --no-cache-dir --requirement /requirements/gpu.txt
COPY --from=wheel /wheel /wheel
RUN /opt/cerberank/bin/pip install --no-cache-dir --no-deps --no-index --find-links /wheel cerberank

# The root file system may be read-only: nothing is written but to /tmp, and that only by libraries that cache.
FROM python AS runtime
RUN groupadd --gid 10001 cerberank && \
    useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin cerberank
ENV PATH=/opt/cerberank/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    CERBERANK_HOST=0.0.0.0
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=2s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health/ready', timeout=2)"]
CMD ["cerberank", "serve"]

FROM runtime AS gpu
COPY --from=gpu-environment /opt/cerberank /opt/cerberank
ENV CERBERANK_BACKEND=torch \
    CERBERANK_DEVICE=cuda \
    CERBERANK_PRECISION=fp16 \
    CERBERANK_CHECKPOINT=/checkpoints/current

FROM runtime AS cpu
COPY --from=cpu-environment /opt/cerberank /opt/cerberank
COPY models/checkpoints/cerberank-mini /checkpoints/cerberank-mini
ENV CERBERANK_CHECKPOINT=/checkpoints/cerberank-mini
