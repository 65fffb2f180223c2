# One image for every role: `docker run offbeat worker monitor`. It writes nothing but to /tmp.
FROM python:3.11.13-slim-bookworm AS build
ENV VIRTUAL_ENV=/opt/offbeat
WORKDIR /build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]

# What it depends on changes seldom: a layer of its own. Hashes are checked at every step, as by `make setup`.
COPY requirements.lock pyproject.toml ./
RUN sed -n '/^uv==/,/[^\\]$/p' requirements.lock >uv.lock \
    && pip install --quiet --no-cache-dir --disable-pip-version-check --require-hashes --requirement uv.lock \
    && python -m venv --without-pip "$VIRTUAL_ENV" \
    && uv pip install --quiet --require-hashes --compile-bytecode --constraints requirements.lock \
        --requirements pyproject.toml

COPY README.md LICENSE ./
COPY offbeat offbeat
COPY diagnosis diagnosis
COPY schemas schemas
COPY producers producers
COPY streams streams
COPY sinks sinks
COPY benchmarks benchmarks
COPY local local
RUN grep -o '"hatchling==[^"]*"' pyproject.toml | tr -d '"' >hatchling.txt \
    && python -m venv --without-pip packing \
    && uv pip install --quiet --python packing --require-hashes --constraints requirements.lock \
        --requirements hatchling.txt \
    && packing/bin/python -m hatchling build --target wheel --directory dist \
    && uv pip install --quiet --no-deps --compile-bytecode dist/*.whl


FROM python:3.11.13-slim-bookworm
LABEL org.opencontainers.image.title="Offbeat" \
    org.opencontainers.image.description="Names the GPU or NIC that makes an LLM training job slow, and why." \
    org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --system --uid 10001 --user-group --no-create-home --home-dir /tmp --shell /usr/sbin/nologin offbeat
COPY --from=build /opt/offbeat /opt/offbeat
ENV PATH=/opt/offbeat/bin:$PATH \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /tmp
ENTRYPOINT ["offbeat"]
CMD ["--help"]
