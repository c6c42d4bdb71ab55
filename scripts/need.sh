# Functions that the commands `run` and `test` share: look for what is missing, install it by the
# system's package manager and say so, or stop with one clear line.

RUST_LEAST=1.91

say() { printf '%s\n' "$*" >&2; }
stop() { say "stopped: $*"; exit 1; }

# The system's own interfaces are used: files, processes, sockets.
[ "$(uname -s)" = Linux ] ||
    stop "Thalweg runs on Linux; on this system in a virtual machine or container of it"

# need COMMAND PACKAGE...: COMMAND must be there, or the Debian packages that bring it.
need() {
    command -v "$1" >/dev/null 2>&1 && return 0
    wanted=$1
    shift
    apt_install "$wanted" "$@"
    command -v "$wanted" >/dev/null 2>&1 || stop "$wanted is still missing after installing $*"
}

apt_install() {
    wanted=$1
    shift
    command -v apt-get >/dev/null 2>&1 ||
        stop "$wanted is needed; install it with your package manager and run this again"
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null 2>&1; then
        stop "$wanted is needed; as root: apt-get install $*"
    fi
    say "$wanted is missing: installing $* with apt-get"
    apt_refresh
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 ||
        stop "apt-get install $* failed; run it by hand to see why"
}

# The list of packages, once.
apt_refresh() {
    [ -n "${apt_refreshed:-}" ] && return 0
    as_root apt-get update -qq >&2 || stop "apt-get update failed"
    apt_refreshed=yes
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Debian 13 and newer have rustup as a package; older ones have no Rust that is new enough.
has_rustup_package() {
    command -v apt-get >/dev/null 2>&1 || return 1
    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null 2>&1 || return 1
    apt_refresh
    apt-cache policy rustup 2>/dev/null | grep -q 'Candidate: [0-9]'
}

# What librdkafka, the client of a Kafka cluster, is built with: it is C and C++ behind a configure
# script, and finds OpenSSL by pkg-config.
need_librdkafka() {
    need make make
    need c++ g++
    need pkg-config pkg-config
    pkg-config --exists openssl 2>/dev/null || apt_install "OpenSSL's headers" libssl-dev
    pkg-config --exists openssl 2>/dev/null ||
        stop "OpenSSL's headers are still missing; install libssl-dev (or openssl-devel)"
}

need_rust() {
    need cc gcc libc6-dev
    need_librdkafka
    [ -x "$HOME/.cargo/bin/cargo" ] && PATH="$HOME/.cargo/bin:$PATH"
    if ! command -v cargo >/dev/null 2>&1; then
        has_rustup_package ||
            stop "Rust $RUST_LEAST or newer is needed; install it from https://rustup.rs, then again"
        need rustup rustup
        say "installing the stable Rust toolchain with rustup"
        rustup default stable >&2 || stop "rustup could not install a toolchain"
    fi
    version=$(cargo --version | cut -d' ' -f2)
    [ "$(printf '%s\n%s\n' "$RUST_LEAST" "$version" | sort -V | head -n 1)" = "$RUST_LEAST" ] ||
        stop "Rust $RUST_LEAST or newer is needed and this is $version; run: rustup update stable"
}
