#!/bin/sh
# Prints this machine's replicas as targets for Prometheus' file_sd_configs: `sh deploy/ray/targets.sh ADDRESS`, with the address
# at which Prometheus reaches the machine. Ray gives each replica the next free port from 30000 on
# (RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT), and another one after each restart.
set -eu
ss --listening --tcp --numeric --no-header 'sport >= 30000 and sport <= 31000' | awk -v address="${1:-127.0.0.1}" '
    { sub(/.*:/, "", $4); if (!seen[$4]++) targets = targets (targets ? ", " : "") "\"" address ":" $4 "\"" }
    END { print "[{\"targets\": [" targets "]}]" }'
