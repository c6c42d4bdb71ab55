// Package kgo pins the version of franz-go whose own integration suite `run` builds and runs.
package kgo

import _ "github.com/twmb/franz-go/pkg/kgo"
