# Sourced by the other scripts: installs what they need, once, and says what it does.
# Everything but Debian packages goes into .cache/ inside the checkout.
# shellcheck shell=bash
set -euo pipefail
# A script that is asked for help prints the comment at its top, and installs, builds and changes nothing.
case "${1:-}" in
  -h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
esac
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT"
# shellcheck source=scripts/versions.env
. "$ROOT/scripts/versions.env"
TOOLS="$ROOT/.cache/tools"
export PATH="$TOOLS/bin:$PATH"
export CARGO_TERM_PROGRESS_WHEN=${CARGO_TERM_PROGRESS_WHEN:-never}
TARGET_DIR=${CARGO_TARGET_DIR:-$ROOT/target}
WEIR="$TARGET_DIR/debug/weir"

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold='\033[1m' plain='\033[0m'; fi
say() { printf '%b==> %s%b\n' "$bold" "$*" "$plain"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# await_start WHAT PID LOG COMMAND…: waits up to a minute until COMMAND succeeds. A process that has ended, or is not there
# by then, is an error that shows the end of its log.
await_start() {
  local what=$1 pid=$2 log=$3 _
  shift 3
  for _ in $(seq 600); do
    "$@" && return 0
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  tail -n 20 "$log" >&2
  die "$what did not start; what it says stands above."
}

# at_least HAVE WANT: true if version HAVE is WANT or newer.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

need_rust() {
  command -v cargo >/dev/null || die "cargo is missing. Install Rust with rustup (https://rustup.rs), open a new shell and run this again."
  local want have
  want=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)
  # rustup installs what rust-toolchain.toml names; a cargo of the distribution does not look there.
  have=$(cargo --version) || die "cargo does not run, or rustup could not install Rust $want."
  have=${have#cargo }; have=${have%% *}
  at_least "$have" "$want" || die "Rust $have is too old: $want or newer is needed. Install it with rustup (https://rustup.rs) and run this again."
  need_packages cc:gcc c++:g++ cmake:cmake make:make pkg-config:pkg-config
}

# node_fits HAVE: true from the minor on that NODE_MIN names for its line, and for all lines behind the last.
node_fits() {
  local min
  for min in $NODE_MIN; do [ "${1%%.*}" = "${min%%.*}" ] && { at_least "$1" "$min"; return; }; done
  at_least "$1" "$min"
}

need_node() {
  local next="Install it from https://nodejs.org (any of $NODE_MIN, each within its line, or newer) and run this again."
  command -v node >/dev/null && command -v npm >/dev/null || die "node or npm is missing. $next"
  local have; have=$(node --version | tr -d v)
  node_fits "$have" || die "Node.js $have does not fit. $next"
}

need_go() {
  local next="Install Go $GO_MIN or newer from https://go.dev/dl and run this again; \`scripts/test\` with the names of the other phases goes without."
  command -v go >/dev/null || die "go is missing (it builds $1). $next"
  local have; have=$(go env GOVERSION | tr -d go)
  at_least "$have" "$GO_MIN" || die "Go $have is too old (it builds $1). $next"
}

# need_packages COMMAND:PACKAGE ...: installs the Debian packages whose command is missing.
need_packages() {
  local missing=() pair
  for pair in "$@"; do command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}"); done
  [ ${#missing[@]} -eq 0 ] && return 0
  command -v apt-get >/dev/null || die "missing: ${missing[*]}. Install them with your package manager and run this again."
  local sudo=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "missing: ${missing[*]}. Run as root: apt-get install ${missing[*]}"
    sudo=(sudo)
  fi
  say "installing Debian packages: ${missing[*]}"
  local failed="could not be installed. Run \`apt-get install ${missing[*]}\` as root, mend what it says, and run this again."
  "${sudo[@]}" apt-get update -qq || die "the list of Debian packages could not be read, so ${missing[*]} $failed"
  DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || die "${missing[*]} $failed"
}

# A browser for the console's tests: what CHROMIUM names, else Debian's.
need_chromium() {
  if [ -n "${CHROMIUM:-}" ]; then
    [ -x "$CHROMIUM" ] || die "CHROMIUM names $CHROMIUM, which is no program. Name one, or unset it to use Debian's."
    return 0
  fi
  need_packages chromium:chromium
  [ -x /usr/bin/chromium ] || die "there is no /usr/bin/chromium. Name the browser in CHROMIUM, e.g. CHROMIUM=$(command -v chromium) $0"
}

# nginx, for the tests of what the operators' guide says of it. Debian puts it where not everybody looks.
need_nginx() { [ -x /usr/sbin/nginx ] || need_packages nginx:nginx-light; }

# has_tool NAME VERSION: it was built here, in that version.
has_tool() { [ -x "$TOOLS/bin/$1" ] && [ "$(cat "$TOOLS/$1.version" 2>/dev/null)" = "$2" ]; }

# build_go NAME PACKAGE VERSION: builds a program in Go.
build_go() {
  say "building $1 $3 (once, a few minutes)"
  mkdir -p "$TOOLS/bin"
  GOBIN="$TOOLS/bin" GOFLAGS=-modcacherw go install "$2@$3" || return 1
  echo "$3" >"$TOOLS/$1.version"
}

# named VARIABLE: what it names is a program; false if it names nothing.
named() {
  [ -n "${!1:-}" ] || return 1
  [ -x "${!1}" ] || die "$1 names ${!1}, which is no program. Name one, or unset it and one is built."
}

has_k6() { has_tool k6 "$K6_VERSION"; }

need_k6() {
  has_k6 && return 0
  need_go "k6, for the phase load"
  build_go k6 go.k6.io/k6 "$K6_VERSION" ||
    die "k6 could not be built; what go says stands above. Without it: \`scripts/test\` with the names of the other phases."
}

need_inferno() {
  has_tool inferno-flamegraph "$INFERNO_VERSION" && return 0
  say "building inferno $INFERNO_VERSION (once, two minutes)"
  cargo install --quiet --locked --root "$TOOLS" "inferno@$INFERNO_VERSION" || die "inferno could not be built; what cargo says stands above."
  echo "$INFERNO_VERSION" >"$TOOLS/inferno-flamegraph.version"
}

has_minio() { named MINIO || has_tool minio "$MINIO_VERSION"; }

# A real S3 for the tests of cold data: what MINIO names, else built here.
need_minio() {
  has_minio && return 0
  need_go "MinIO, for the phase rust"
  build_go minio github.com/minio/minio "$MINIO_VERSION" ||
    die "MinIO could not be built; what go says stands above. A minio of your own can be named in MINIO."
}

has_fake_gcs() { named FAKE_GCS_SERVER || has_tool fake-gcs-server "$FAKE_GCS_VERSION"; }

# Google Cloud Storage for them: what FAKE_GCS_SERVER names, else built here. What it lacks: storage-node/tier/tests/clouds/google.mjs.
need_fake_gcs() {
  has_fake_gcs && return 0
  need_go "fake-gcs-server, for the phase rust"
  build_go fake-gcs-server github.com/fsouza/fake-gcs-server "$FAKE_GCS_VERSION" ||
    die "fake-gcs-server could not be built; what go says stands above. One of your own can be named in FAKE_GCS_SERVER."
}

# Azure Blob Storage for them.
need_azurite() {
  local dir="$TOOLS/azurite"
  cmp -s scripts/azurite/package-lock.json "$dir/package-lock.json" && [ -f "$dir/node_modules/.package-lock.json" ] && return 0
  need_node
  say "installing Azurite"
  mkdir -p "$dir"
  cp scripts/azurite/package.json scripts/azurite/package-lock.json "$dir/"
  (cd "$dir" && npm ci --no-audit --no-fund --loglevel=error) ||
    die "Azurite could not be installed; what npm says stands above. Mend that (it needs the registry) and run this again."
}

# has_terraform: there is one that runs tests: what TERRAFORM names, else an installed one, or the one that was built here. $terraform is
# its path. It does not ask whether there is a newer one, and reads no configuration of whoever runs it.
has_terraform() {
  local have
  export CHECKPOINT_DISABLE=1 TF_CLI_CONFIG_FILE=/dev/null TF_DATA_DIR="$ROOT/.cache/terraform"
  named TERRAFORM && terraform=$TERRAFORM && return 0
  for terraform in terraform tofu; do
    terraform=$(command -v "$terraform") || continue
    have=$("$terraform" version | sed -n '1s/.* v//p')
    at_least "$have" "$TERRAFORM_MIN" && return 0
  done
  return 1
}

# `go install` refuses a program that replaces modules it needs, so it is built within its own source.
need_terraform() {
  has_terraform && return 0
  command -v go >/dev/null || die "neither terraform nor tofu ($TERRAFORM_MIN or newer) is installed, and go, which would build one, is missing."
  say "building OpenTofu $OPENTOFU_VERSION (once, some minutes)"
  local source
  source=$(go mod download -json "github.com/opentofu/opentofu@$OPENTOFU_VERSION" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
  mkdir -p "$TOOLS/bin"
  (cd "${source:?}" && go build -trimpath -o "$TOOLS/bin/tofu" ./cmd/tofu) ||
    die "OpenTofu could not be built; what go says stands above. A terraform or tofu of your own can be named in TERRAFORM."
  has_terraform
}

need_cargo_deny() {
  if [ -x "$TOOLS/bin/cargo-deny" ] && [ "$(cat "$TOOLS/cargo-deny.version" 2>/dev/null)" = "$CARGO_DENY_VERSION" ]; then return 0; fi
  say "building cargo-deny $CARGO_DENY_VERSION (once, a minute or two)"  # unoptimised: it runs for seconds
  cargo install --quiet --locked --debug --root "$TOOLS" --target-dir "$ROOT/.cache/cargo-deny-target" "cargo-deny@$CARGO_DENY_VERSION" ||
    die "cargo-deny could not be built; what cargo says stands above. Mend that and run this again."
  rm -rf "$ROOT/.cache/cargo-deny-target"
  echo "$CARGO_DENY_VERSION" >"$TOOLS/cargo-deny.version"
}

# built PROGRAM [OPTION…]: compiles a program in the debug profile together with a test. Alone it would get other features of its
# dependencies than the tests get (tokio without its test clock), and most of them would be compiled twice.
built() { cargo build --locked --workspace --bin "$1" --test torture "${@:2}"; }

# need_crates DIRECTORY ...: downloads the crates of these workspaces.
need_crates() {
  local dir
  for dir in "$@"; do
    cargo fetch --locked --quiet --manifest-path "$dir/Cargo.toml" ||
      die "the crates of $dir/Cargo.lock could not be fetched; what cargo says stands above. Mend that (it needs the registry) and run this again."
  done
}

# What scripts/check needs.
need_for_check() {
  need_packages git:git # lists the documents
  need_cargo_deny
  need_crates fuzz
}

# Dependencies of the console, reinstalled only when its lock file changed.
need_console_packages() {
  need_node
  if [ ! -f console/node_modules/.package-lock.json ] || [ console/package-lock.json -nt console/node_modules/.package-lock.json ]; then
    say "installing the console's packages"
    (cd console && npm ci --no-audit --no-fund --loglevel=error) ||
      die "the console's packages could not be installed; what npm says stands above. Mend that (it needs the registry) and run this again."
  fi
}

# console/dist, rebuilt when a source is newer.
need_console() {
  need_console_packages
  if [ ! -f console/dist/index.html ] || [ -n "$(find console/src console/index.html console/package-lock.json console/vite.config.ts -newer console/dist/index.html -print -quit)" ]; then
    say "building the console"
    (cd console && npm run --silent build)
  fi
}
