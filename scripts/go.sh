# Go and what the tests build with it, for `test` and for franz-go's whole suite.

GO_LEAST=1.21

# Go from GO_LEAST on fetches the newer toolchain that a module asks for by itself.
need_go() {
    need go golang-go
    version=$(go env GOVERSION | sed 's/^go//')
    [ "$(printf '%s\n%s\n' "$GO_LEAST" "$version" | sort -V | head -n 1)" = "$GO_LEAST" ] ||
        stop "Go $GO_LEAST or newer is needed and this is $version; see https://go.dev/dl"
    export GOTOOLCHAIN=auto
}

kgo_dir=$PWD/crates/thalweg/tests/interop/kgo
kgo_test=$PWD/target/test-env/kgo.test

# Builds franz-go's integration suite as it stands in the module cache.
kgo_suite() {
    mkdir -p target/test-env
    (cd "$kgo_dir" && go test -c -o "$kgo_test" github.com/twmb/franz-go/pkg/kgo)
}

# Where the suite's sources lie: some of its tests read them.
kgo_sources() {
    (cd "$kgo_dir" && go list -f '{{.Dir}}' github.com/twmb/franz-go/pkg/kgo)
}
