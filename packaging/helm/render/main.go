// Render the chart as `helm template` does, for machines without Helm: Go's templates with sprig's functions.
//
//	GO111MODULE=off GOPATH=/usr/share/gocode go run packaging/helm/render/main.go CHART [VALUES.yaml] [REPLICAS]
//
// Debian has the two libraries: golang-github-masterminds-sprig-dev and golang-gopkg-yaml.v3-dev. REPLICAS is the number
// of nodes of a StatefulSet that `lookup` finds; without it there is none. Of Helm it knows what this chart uses.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

type values = map[string]interface{}

func read(path string) values {
	text, err := os.ReadFile(path)
	check(err)
	found := values{}
	check(yaml.Unmarshal(text, &found))
	return found
}

// merge puts the values of `over` into `base`, as Helm does: maps are merged, all else is replaced.
func merge(base, over values) {
	for name, value := range over {
		inner, isMap := value.(values)
		if old, wasMap := base[name].(values); isMap && wasMap {
			merge(old, inner)
		} else {
			base[name] = value
		}
	}
}

func toYaml(value interface{}) string {
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	check(encoder.Encode(value))
	return strings.TrimSuffix(text.String(), "\n")
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	chart := os.Args[1]
	merged := read(filepath.Join(chart, "values.yaml"))
	if len(os.Args) > 2 && os.Args[2] != "" {
		merge(merged, read(os.Args[2]))
	}
	replicas := 0
	if len(os.Args) > 3 {
		number, err := strconv.Atoi(os.Args[3])
		check(err)
		replicas = number
	}
	about := read(filepath.Join(chart, "Chart.yaml"))
	root := values{
		"Values":  merged,
		"Release": values{"Name": "disque", "Namespace": "default", "Service": "Helm"},
		"Chart": values{
			"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"],
		},
	}

	all := template.New("chart").Option("missingkey=zero")
	functions := sprig.TxtFuncMap()
	functions["toYaml"] = toYaml
	functions["lookup"] = func(api, kind, namespace, name string) values {
		if replicas == 0 || kind != "StatefulSet" {
			return values{}
		}
		return values{"spec": values{"replicas": replicas}}
	}
	functions["include"] = func(name string, data interface{}) (string, error) {
		var text bytes.Buffer
		err := all.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	all.Funcs(functions)
	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	check(err)
	sort.Strings(paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		check(err)
		template.Must(all.New(filepath.Base(path)).Parse(string(text)))
	}
	for _, path := range paths {
		name := filepath.Base(path)
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		var text bytes.Buffer
		check(all.ExecuteTemplate(&text, name, root))
		if made := strings.Trim(text.String(), "\n"); strings.TrimSpace(made) != "" {
			made = strings.TrimPrefix(made, "---\n")
			fmt.Printf("---\n# Source: %s/templates/%s\n%s\n", about["name"], name, made)
		}
	}
}
