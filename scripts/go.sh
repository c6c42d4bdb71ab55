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

go_dir=$PWD/crates/thalweg/tests/interop/go
kgo_dir=$PWD/crates/thalweg/tests/interop/kgo
kgo_test=$PWD/target/test-env/kgo.test
kgo_sources=$PWD/target/test-env/kgo-sources
go_clients=$PWD/target/test-env/go-clients

# Builds the program with the Go clients.
go_clients() {
    (cd "$go_dir" && go build -o "$go_clients" .)
}

# Builds franz-go's integration suite as it stands in the module cache, and notes where that is:
# some of its tests read the sources beside them.
kgo_suite() {
    mkdir -p target/test-env
    (cd "$kgo_dir" && go test -c -o "$kgo_test" github.com/twmb/franz-go/pkg/kgo) &&
        sources=$(cd "$kgo_dir" && go list -f '{{.Dir}}' github.com/twmb/franz-go/pkg/kgo) &&
        ln -sfn "$sources" "$kgo_sources"
}
