//go:build tools

// Package tools names the servers that the whole-system tests build.
package tools

import (
	_ "github.com/fsouza/fake-gcs-server"
	_ "github.com/versity/versitygw/cmd/versitygw"
)
