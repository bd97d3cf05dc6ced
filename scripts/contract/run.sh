#!/usr/bin/env bash
# The phase contract: the OpenAPI document as tools that nobody here wrote take it. It is valid, a fuzzer that believes it finds
# nothing in the product, and clients that are generated from it compile, publish, pull and settle.
. "$(dirname "$0")/../setup.sh"
. "$ROOT/scripts/weir.sh"
. "$ROOT/scripts/contract/install.sh"
FROM="$ROOT/scripts/contract" DOCUMENT="$ROOT/openapi/openapi.json"
PYTHON="$CONTRACT/python/bin" NODE="$CONTRACT/node/node_modules/.bin"
# One worker: Python 3.11 fails by itself where several threads compile deep patterns (SystemError, AST recursion depth).
# Of each operation at least so many requests are made. The seed is fixed: a phase that passes once passes again.
EXAMPLES=${CONTRACT_EXAMPLES:-60} SEED=${CONTRACT_SEED:-1}
work=$(mktemp -d)
trap 'stop_weir || true; rm -rf "$work"' EXIT

# quiet WHAT COMMAND…: what it says is shown only if it fails.
quiet() {
  local what=$1
  shift
  "$@" >"$work/said" 2>&1 || { tail -n 60 "$work/said" >&2; die "$what failed; what it says stands above."; }
}

valid() {
  say "contract: the document is valid"
  quiet openapi-spec-validator "$PYTHON/openapi-spec-validator" "$DOCUMENT"
  export REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true
  quiet redocly "$NODE/redocly" lint --extends=recommended --format=stylish "$DOCUMENT"
  echo 'extends: ["spectral:oas"]' >"$work/spectral.yaml"
  quiet spectral "$NODE/spectral" lint --fail-severity error -r "$work/spectral.yaml" "$DOCUMENT"
}

fuzzed() {
  say "contract: generated requests, at least $EXAMPLES of each operation (seed $SEED)"
  start_weir "$WEIR" "$work"
  (cd "$work" && WEIR_URL="$weir_url" SCHEMATHESIS_HOOKS=hooks PYTHONPATH="$FROM/schemathesis" timeout 300 "$PYTHON/schemathesis" \
    --config-file "$FROM/schemathesis/schemathesis.toml" run "$DOCUMENT" --url "$weir_url" --checks all --max-examples "$EXAMPLES" \
    --seed "$SEED" --workers 1 --request-timeout 10 --no-color) || die "the product and its document differ; what schemathesis found stands above."
  stop_weir || die "the product did not end well after it; its log: $(tail -n 5 "$work/log")"
}

openapi_generator() {
  quiet "openapi-generator ($1)" java -jar "$CONTRACT"/jars/openapi-generator-cli-*.jar generate -g "$1" -i "$DOCUMENT" -o "$2" "${@:3}"
}

# A topic and a subscription of this name, for a client.
given() {
  curl -fsS -o "$work/said" -X PUT -H 'Content-Type: application/json' -d '{}' "$weir_url/v1/topics/$1"
  curl -fsS -o "$work/said" -X PUT -H 'Content-Type: application/json' -d "{\"topics\":[\"$1\"]}" "$weir_url/v1/subscriptions/$1"
}

# runs NAME COMMAND…: the client publishes, pulls and settles.
runs() {
  local name=$1
  shift
  given "$name"
  WEIR_URL="$weir_url" quiet "the client of $name" timeout 60 "$@" "$name"
  say "contract: $name compiles, publishes, pulls and settles"
}

python_clients() {
  local to="$work/python"
  mkdir -p "$to"
  openapi_generator python "$work/openapi-generator" --additional-properties packageName=weir_openapi_generator
  mv "$work/openapi-generator/weir_openapi_generator" "$to/"
  quiet openapi-python-client "$PYTHON/openapi-python-client" generate --path "$DOCUMENT" --meta none --output-path "$to/weir_python_client"
  PYTHONPATH="$to" runs openapi-generator-python "$PYTHON/python" "$FROM/python/openapi_generator.py"
  PYTHONPATH="$to" runs openapi-python-client "$PYTHON/python" "$FROM/python/openapi_python_client.py"
}

go_clients() {
  local to="$work/go"
  cp -r "$FROM/go" "$to"
  mkdir -p "$to/generated/oapi"
  cd "$to"
  export GOFLAGS=-mod=readonly
  quiet oapi-codegen go tool oapi-codegen -generate types,client -package oapi -o generated/oapi/oapi.go "$DOCUMENT"
  quiet ogen go tool ogen --target generated/ogen --package ogen --clean "$DOCUMENT"
  local name
  for name in oapi-codegen ogen; do
    quiet "go build ($name)" go build -o "bin/$name" "./$name"
    runs "$name" "bin/$name"
  done
  cd "$ROOT"
}

typescript_clients() {
  local to="$CONTRACT/node/typescript" name
  rm -rf "$to"
  cp -r "$FROM/typescript" "$to"
  quiet openapi-typescript "$NODE/openapi-typescript" "$DOCUMENT" --default-non-nullable false -o "$to/generated/openapi-typescript.d.ts"
  openapi_generator typescript-fetch "$to/generated/typescript-fetch" --additional-properties importFileExtension=.js
  quiet tsc "$NODE/tsc" -p "$to"
  for name in openapi-typescript typescript-fetch; do runs "$name" node "$to/out/$name.js"; done
}

java_client() {
  local to="$work/java" jars="$CONTRACT/jars/*"
  openapi_generator java "$to" --library native
  find "$to/src/main/java" -name '*.java' >"$work/sources"
  quiet javac javac -nowarn -d "$work/classes" -cp "$jars" @"$work/sources" "$FROM/java/Drive.java"
  runs openapi-generator-java java -cp "$work/classes:$jars" Drive
}

valid
fuzzed
start_weir "$WEIR" "$work"
python_clients
go_clients
typescript_clients
java_client
stop_weir
