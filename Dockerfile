# Two images of one service. `docker build --target cpu .` (also without --target): ONNX Runtime, no torch, serves the
# checkpoint that the package contains. `docker build --target gpu .`: PyTorch on CUDA; without a checkpoint mounted at
# /checkpoints/current, or a CERBERANK_STORE, the process ends with exit code 2. `--build-arg EXTRAS=s3,otel` adds extras.
# `make image-check` runs every command of both without Docker. The base image is named by its exact tag; if you have a
# registry, pin its digest.
FROM python:3.11.15-slim-bookworm AS python

FROM python AS wheel
WORKDIR /source
COPY requirements/build.txt requirements/
RUN pip install --no-cache-dir --require-hashes --requirement requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY training/cerberank_training training/cerberank_training
COPY cerberank cerberank
COPY models/cerberank_models models/cerberank_models
COPY service/cerberank_service service/cerberank_service
RUN python -m hatchling build --target wheel --directory /wheel

FROM python AS cpu-environment
ARG EXTRAS=""
COPY requirements/serve-image.txt requirements/extras.txt /requirements/
RUN python -m venv /opt/cerberank && \
    /opt/cerberank/bin/pip install --no-cache-dir --require-hashes --requirement /requirements/serve-image.txt
COPY --from=wheel /wheel /wheel
RUN /opt/cerberank/bin/pip install --no-cache-dir --no-deps --no-index --find-links /wheel cerberank && \
    if [ -n "$EXTRAS" ]; then \
    /opt/cerberank/bin/pip install --no-cache-dir --constraint /requirements/extras.txt "$(echo /wheel/*.whl)[$EXTRAS]"; fi

# Without hashes: torch's wheel is another one for each index.
FROM python AS gpu-environment
ARG EXTRAS=""
COPY requirements/gpu.txt requirements/extras.txt /requirements/
RUN python -m venv /opt/cerberank && \
    /opt/cerberank/bin/pip install --no-cache-dir --requirement /requirements/gpu.txt
COPY --from=wheel /wheel /wheel
RUN /opt/cerberank/bin/pip install --no-cache-dir --no-deps --no-index --find-links /wheel cerberank && \
    if [ -n "$EXTRAS" ]; then \
    /opt/cerberank/bin/pip install --no-cache-dir --constraint /requirements/extras.txt "$(echo /wheel/*.whl)[$EXTRAS]"; fi

# The root file system may be read-only: nothing is written but to /tmp, and that only by libraries that cache.
FROM python AS runtime
RUN groupadd --gid 10001 cerberank && \
    useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin cerberank
ENV PATH=/opt/cerberank/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    CERBERANK_HOST=0.0.0.0 \
    MALLOC_MMAP_THRESHOLD_=1048576 \
    MALLOC_TRIM_THRESHOLD_=4194304
USER 10001:10001
EXPOSE 8000
# By the settings for port and TLS; the program's own start takes part of the time.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["cerberank", "admin", "probe", "ready"]
CMD ["cerberank", "serve"]

FROM runtime AS gpu
COPY --from=gpu-environment /opt/cerberank /opt/cerberank
# Backend, precision (fp16) and tokens of a step are the device's usual ones; with a store no checkpoint is needed.
# NVIDIA's container toolkit mounts the driver's libraries for these: CUDA, and NVML for the metrics of the device. glibc
# has as many arenas as it likes, because more threads tokenise here than in the cpu image.
ENV CERBERANK_DEVICE=cuda \
    CERBERANK_CHECKPOINT=/checkpoints/current \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM runtime AS cpu
COPY --from=cpu-environment /opt/cerberank /opt/cerberank
ENV MALLOC_ARENA_MAX=2
