# What the tests need beside Rust: real clients of every protocol, put under target/test-env.
# Each step is skipped when its result is there already.

env_dir=$PWD/target/test-env
mkdir -p "$env_dir"
. scripts/go.sh

need curl curl ca-certificates
need pgrep procps
need kcat kcat
need openssl openssl
need mosquitto_sub mosquitto-clients
# The broker on the other side of bridges. Debian keeps it off everybody's PATH.
[ -x /usr/sbin/mosquitto ] || need mosquitto mosquitto
need javac default-jdk-headless
need mvn maven
need_go
need node nodejs
need npm npm
need chromium chromium
need yaz-marcdump yaz
need python3 python3
# The fleet's registry is tested on both. Debian keeps their servers off everybody's PATH.
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1 ||
    apt_install PostgreSQL postgresql
[ -x /usr/sbin/mariadbd ] || need mariadbd mariadb-server
# Debian's python3 has no venv of its own.
python3 -c 'import ensurepip' 2>/dev/null || apt_install "python3's venv" python3-venv

# step NAME FILE...: runs the function NAME unless it ran already with the same files.
step() {
    name=$1
    shift
    stamp="$env_dir/$name.stamp"
    sum=$(cat "$@" | cksum)
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$sum" ] && return 0
    say "setting up $name"
    "$name" || stop "cannot set up $name"
    printf '%s' "$sum" >"$stamp"
}

python_clients() {
    python3 -m venv "$env_dir/venv" &&
        "$env_dir/venv/bin/pip" install --quiet --disable-pip-version-check \
            -r crates/thalweg/tests/interop/requirements.txt
}

# Records of the Library of Congress and files of bad records: pymarc's source package has them.
marc_files() {
    rm -rf "$env_dir/marc" && mkdir "$env_dir/marc" &&
        "$env_dir/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps \
            --no-binary pymarc -d "$env_dir/marc" pymarc==5.4.0 &&
        tar -xzf "$env_dir/marc/pymarc-5.4.0.tar.gz" -C "$env_dir/marc" --strip-components=1 \
            pymarc-5.4.0/BooksAll.2016.part01.utf8 pymarc-5.4.0/test &&
        mv "$env_dir/marc/BooksAll.2016.part01.utf8" "$env_dir/marc/books.mrc" &&
        rm "$env_dir/marc/pymarc-5.4.0.tar.gz"
}

kafka_clients() {
    mvn -q -B -f crates/thalweg/tests/interop/kafka/pom.xml dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$env_dir/kafka"
}

# A broker to be the external event store; the lab compares with the same.
kafka_broker() {
    mvn -q -B -f crates/lab/src/load/kafka.pom.xml dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$env_dir/kafka-broker"
}

kafka_3_client() {
    mvn -q -B -f crates/thalweg/tests/interop/kafka-3.9/pom.xml dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$env_dir/kafka-3.9"
}

# The C2 client library's classes are for Java 21; this compiler reads them on any Java.
# c2_driver NAME FOLDER: the library that FOLDER names with our driver for it, put under NAME.
c2_driver() {
    mvn -q -B -f "$2/pom.xml" dependency:copy-dependencies \
        -DoutputDirectory="$env_dir/$1/lib" &&
        java -jar "$env_dir/$1"/lib/ecj-*.jar --release 17 -nowarn \
            -cp "$(echo "$env_dir/$1"/lib/*.jar | tr ' ' ':')" \
            -d "$env_dir/$1/classes" "$2/Main.java"
}

nifi_c2() {
    c2_driver nifi-c2 crates/thalweg/tests/interop/nifi-c2
}

nifi_c2_oldest() {
    c2_driver nifi-c2-1.18 crates/thalweg/tests/interop/nifi-c2/1.18
}

schema_clients() {
    mkdir -p "$env_dir/schema-clients" &&
        cp "$schemas_dir/package.json" "$schemas_dir/package-lock.json" "$env_dir/schema-clients" &&
        (cd "$env_dir/schema-clients" && npm ci --silent --ignore-scripts --no-audit --no-fund)
}

mqtt_java() {
    mvn -q -B -f "$mqtt_dir/pom.xml" dependency:copy-dependencies \
        -DincludeScope=runtime -DoutputDirectory="$env_dir/mqtt"
}

mqtt_js() {
    mkdir -p "$env_dir/mqtt-js" &&
        cp "$mqtt_dir/js/package.json" "$mqtt_dir/js/package-lock.json" "$env_dir/mqtt-js" &&
        (cd "$env_dir/mqtt-js" && npm ci --silent --ignore-scripts --no-audit --no-fund)
}

mqtt_go() {
    (cd "$mqtt_dir/go" && go build -o "$env_dir/go-mqtt" .)
}

# Stand-ins for the object storages of Google, Amazon and, below, Azure.
object_storage() {
    (cd "$storages_dir" && go build -o "$env_dir/object-storage/" \
        github.com/fsouza/fake-gcs-server github.com/versity/versitygw/cmd/versitygw)
}

azurite() {
    mkdir -p "$env_dir/azurite" &&
        cp "$storages_dir/package.json" "$storages_dir/package-lock.json" "$env_dir/azurite" &&
        (cd "$env_dir/azurite" && npm ci --silent --ignore-scripts --no-audit --no-fund)
}

console_packages() {
    (cd console && npm ci --silent --no-audit --no-fund)
}

schemas_dir=crates/thalweg/tests/interop/schemas
step python_clients crates/thalweg/tests/interop/requirements.txt
step marc_files crates/thalweg/tests/interop/requirements.txt
step kafka_clients crates/thalweg/tests/interop/kafka/pom.xml
step kafka_broker crates/lab/src/load/kafka.pom.xml
step kafka_3_client crates/thalweg/tests/interop/kafka-3.9/pom.xml
step go_clients "$go_dir"/go.mod "$go_dir"/go.sum "$go_dir"/*.go
step kgo_suite "$kgo_dir"/go.mod "$kgo_dir"/go.sum
step nifi_c2 crates/thalweg/tests/interop/nifi-c2/pom.xml \
    crates/thalweg/tests/interop/nifi-c2/Main.java
step nifi_c2_oldest crates/thalweg/tests/interop/nifi-c2/1.18/pom.xml \
    crates/thalweg/tests/interop/nifi-c2/1.18/Main.java
step schema_clients "$schemas_dir/package.json" "$schemas_dir/package-lock.json"
mqtt_dir=crates/thalweg/tests/interop/mqtt
step mqtt_java "$mqtt_dir/pom.xml"
step mqtt_js "$mqtt_dir/js/package.json" "$mqtt_dir/js/package-lock.json"
step mqtt_go "$mqtt_dir/go/go.mod" "$mqtt_dir/go/go.sum" "$mqtt_dir/go/main.go"
storages_dir=crates/thalweg/tests/interop/object-storage
step object_storage "$storages_dir/go.mod" "$storages_dir/go.sum"
step azurite "$storages_dir/package.json" "$storages_dir/package-lock.json"
step console_packages console/package-lock.json
[ -d console/node_modules ] || console_packages
