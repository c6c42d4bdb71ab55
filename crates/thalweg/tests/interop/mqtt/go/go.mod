module thalweg/mqtt

go 1.26.0

require github.com/eclipse/paho.golang v0.23.0
