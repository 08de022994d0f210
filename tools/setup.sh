#!/usr/bin/env bash
# Sets up a Debian 12/13 or Ubuntu 24.04 machine for building and testing Bedplate: system packages, and a virtual
# environment .venv in the repository's root with PyTorch. Idempotent; says what it installs; quick the second time.
#
# Without root it prints the one command for an administrator and goes on with what is there.
# Environment:
#   TORCH_INDEX_URL   package index to take torch from, for example one with CPU builds
#   BEDPLATE_TORCH    "any": take whatever torch pip finds, CUDA builds of several GB included; "none": no torch
set -euo pipefail
cd "$(dirname "$0")/.."

torch_version=2.13.0
venv=.venv
required=(g++ cmake ninja-build pkg-config libfmt-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev libsqlite3-dev
  libisal-dev libgtest-dev libgmock-dev python3-dev python3-venv)
optional=(ccache mold clang llvm libbpf-dev liburing-dev libcurl4-openssl-dev libssl-dev libpugixml-dev libjpeg-dev libpng-dev clang-format sqlite3 fio iproute2 util-linux procps valgrind)

say() { printf 'setup: %s\n' "$*"; }

missing_of() {
  local package
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || printf '%s\n' "$package"
  done
}

system_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "this is not Debian or Ubuntu: install what corresponds to: ${required[*]} (and, optional: ${optional[*]})"
    return
  fi
  local missing
  mapfile -t missing < <(missing_of "${required[@]}" "${optional[@]}")
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    say "packages are missing; an administrator installs them with:"
    printf '    sudo apt-get install %s\n' "${missing[*]}"
    local needed
    mapfile -t needed < <(missing_of "${required[@]}")
    [ ${#needed[@]} -eq 0 ] || { say "these are needed to build at all: ${needed[*]}"; exit 3; }
    return 0
  fi
  say "installing from Debian: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq || say "apt-get update failed; trying with the package lists that are there"
  local log
  log=$(mktemp)
  if ! apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$log" 2>&1; then
    # One absent optional package must not keep the others away.
    local package
    for package in "${missing[@]}"; do
      apt-get install -y -qq --no-install-recommends "$package" >>"$log" 2>&1 && continue
      case " ${required[*]} " in
        *" $package "*) tail -n 5 "$log"; say "package $package could not be had; it is needed"; exit 3 ;;
        *) say "package $package could not be had; going on without it" ;;
      esac
    done
  fi
  rm -f "$log"
}

python_has() { "$1" - "$2" "$3" 2>/dev/null <<'PY'
import importlib, sys
module = importlib.import_module(sys.argv[1])
version = tuple(int(p) for p in module.__version__.split("+")[0].split(".")[:2])
sys.exit(0 if version >= tuple(int(p) for p in sys.argv[2].split(".")) else 1)
PY
}

virtual_environment() {
  if [ ! -x $venv/bin/python ] || ! $venv/bin/python -c 'import pip' 2>/dev/null; then
    local flags=()
    if python_has python3 torch 2.1; then
      say "using the torch that this machine's Python has"
      flags=(--system-site-packages)
    fi
    say "making the virtual environment $venv"
    rm -rf $venv
    python3 -m venv "${flags[@]}" $venv
  fi
  if ! $venv/bin/python -c 'import pytest, numpy, jsonschema, scikit_build_core' 2>/dev/null; then
    say "installing from PyPI into $venv: $(tr '\n' ' ' <requirements-dev.txt)"
    pip_install -r requirements-dev.txt || { say "the packages of requirements-dev.txt could not be had"; exit 3; }
  fi
}

pip_install() { $venv/bin/python -m pip install -q --disable-pip-version-check "$@" 2> >(grep -v '^WARNING: Location' >&2); }

# Whether pip would take a torch that carries CUDA: then its requirements name nvidia packages.
torch_is_cuda() {
  pip_install --dry-run --ignore-installed --report "$1" "torch==$torch_version" >/dev/null || return 2
  grep -q '"name": *"nvidia' "$1"
}

install_torch() {
  if python_has $venv/bin/python torch 2.1; then return 0; fi
  [ "${BEDPLATE_TORCH:-}" != none ] || { say "no torch, as BEDPLATE_TORCH=none asks; tests that need it are skipped by name"; return 0; }
  if [ -n "${TORCH_INDEX_URL:-}" ]; then
    say "installing torch==$torch_version from $TORCH_INDEX_URL"
    pip_install --extra-index-url "$TORCH_INDEX_URL" "torch==$torch_version" || { say "torch==$torch_version could not be had"; exit 3; }
    return 0
  fi
  local report status=0
  report=$(mktemp)
  torch_is_cuda "$report" || status=$?
  rm -f "$report"
  if [ $status -eq 2 ]; then
    say "torch==$torch_version could not be had for $($venv/bin/python --version); going on without: tests that need it are skipped by name"
  elif [ $status -eq 0 ] && [ "${BEDPLATE_TORCH:-}" != any ] && [ ! -e /proc/driver/nvidia ]; then
    say "pip offers only a CUDA build of torch (several GB) and this machine has no NVIDIA driver: going on without torch."
    say "  TORCH_INDEX_URL=<index with CPU builds> make test   takes a small one;   BEDPLATE_TORCH=any make test   takes this one."
  else
    say "installing torch==$torch_version from where pip finds it"
    pip_install "torch==$torch_version" || { say "torch==$torch_version could not be had"; exit 3; }
  fi
}

system_packages
virtual_environment
install_torch
