# Sourced by scripts/test for the phase contract: what it needs, into .cache/contract. Versions: scripts/contract/requirements.txt,
# package-lock.json, pom.xml and go/go.mod.
# shellcheck shell=bash
CONTRACT="$ROOT/.cache/contract"

# What is asked for before anything slow begins.
ask_for_contract() {
  need_node
  need_go "the clients in Go, for the phase contract"
}

need_contract() {
  ask_for_contract
  need_packages python3:python3 javac:default-jdk-headless mvn:maven curl:curl
  # Debian's python3 has no command that says whether it can make environments of its own.
  python3 -c 'import ensurepip, venv' 2>/dev/null || need_packages a-python-with-venv:python3-venv
  local from="$ROOT/scripts/contract"
  mkdir -p "$CONTRACT/node"
  if ! cmp -s "$from/requirements.txt" "$CONTRACT/python/requirements.txt"; then
    say "installing validators and generators in Python"
    python3 -m venv "$CONTRACT/python" && "$CONTRACT/python/bin/pip" install --quiet --disable-pip-version-check -r "$from/requirements.txt" ||
      die "the packages of scripts/contract/requirements.txt could not be installed; what pip says stands above."
    cp "$from/requirements.txt" "$CONTRACT/python/"
  fi
  if ! { cmp -s "$from/package-lock.json" "$CONTRACT/node/package-lock.json" && [ -f "$CONTRACT/node/node_modules/.package-lock.json" ]; }; then
    say "installing validators and generators in JavaScript"
    cp "$from/package.json" "$from/package-lock.json" "$CONTRACT/node/"
    (cd "$CONTRACT/node" && npm ci --no-audit --no-fund --loglevel=error) ||
      die "the packages of scripts/contract/package-lock.json could not be installed; what npm says stands above."
  fi
  if ! cmp -s "$from/pom.xml" "$CONTRACT/jars/pom.xml"; then
    say "downloading openapi-generator"
    rm -rf "$CONTRACT/jars"
    mvn -q -B -f "$from/pom.xml" dependency:copy-dependencies -DoutputDirectory="$CONTRACT/jars" ||
      die "the jars of scripts/contract/pom.xml could not be downloaded; what Maven says stands above."
    cp "$from/pom.xml" "$CONTRACT/jars/"
  fi
}
