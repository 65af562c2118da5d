#!/bin/sh
# Usage: loopback.sh POLICY [SECONDS]
set -eu
andante simulate "$1" &
simulator=$!
trap 'kill "$simulator"; wait "$simulator"' EXIT
andante run "$1" --robot udp --seconds "${2:-10}"
