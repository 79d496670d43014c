// Prints what a Go cloud-controller-manager shows to whoever runs it, one fact a line, for changes.sh to compare: flags,
// feature gates, component configuration and metrics. Run in a module that requires one version of k8s.io/cloud-provider.
//
// Flags, gates and configuration are those of the framework's own command, made and asked. Metrics are read from the
// source of every package that it links, since most of them register when their controller starts.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

func main() {
	ccm, err := options.NewCloudControllerManagerOptions()
	check(err)
	command := newCommand(ccm)
	var facts []string
	facts = append(facts, flags(command)...)
	facts = append(facts, gates()...)
	facts = append(facts, configuration()...)
	facts = append(facts, metrics()...)
	slices.Sort(facts)
	out := bufio.NewWriter(os.Stdout)
	for _, fact := range slices.Compact(facts) {
		fmt.Fprintln(out, fact)
	}
	check(out.Flush())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "dump:", err)
		os.Exit(1)
	}
}

// newCommand calls the constructor with arguments found by their types: how many there are differs between versions.
func newCommand(ccm *options.CloudControllerManagerOptions) *cobra.Command {
	constructor := reflect.ValueOf(app.NewCloudControllerManagerCommand)
	known := []reflect.Value{
		reflect.ValueOf(ccm), reflect.ValueOf(app.DefaultInitFuncConstructors), reflect.ValueOf(names.CCMControllerAliases()),
	}
	arguments := make([]reflect.Value, constructor.Type().NumIn())
	for i := range arguments {
		wanted := constructor.Type().In(i)
		arguments[i] = reflect.Zero(wanted)
		for _, value := range known {
			if value.Type().AssignableTo(wanted) {
				arguments[i] = value
			}
		}
	}
	return constructor.Call(arguments)[0].Interface().(*cobra.Command)
}

var (
	sectionLine = regexp.MustCompile(`(?i)^(\S.*) flags:$`)
	flagLine    = regexp.MustCompile(`^\s+(?:-\w, )?--([\w-]+)`)
)

// flags gives name, section of the help, shorthand, type, default, and help of each.
func flags(command *cobra.Command) []string {
	var help bytes.Buffer
	command.SetOut(&help)
	check(command.Help())
	sections, section := map[string]string{}, ""
	for line := range strings.Lines(help.String()) {
		line = strings.TrimRight(line, "\n")
		if match := sectionLine.FindStringSubmatch(line); match != nil {
			section = strings.ToLower(match[1])
		} else if match := flagLine.FindStringSubmatch(line); match != nil {
			sections[match[1]] = section
		}
	}
	var facts []string
	command.Flags().VisitAll(func(flag *pflag.Flag) {
		facts = append(facts,
			fact("flag", flag.Name, "section", sections[flag.Name]),
			fact("flag", flag.Name, "type", strings.TrimSpace(flag.Value.Type()+" "+flag.Shorthand)),
			fact("flag", flag.Name, "default", flag.DefValue),
			fact("flag", flag.Name, "help", flagHelp(flag)))
		if flag.Deprecated != "" {
			facts = append(facts, fact("flag", flag.Name, "deprecated", flag.Deprecated))
		}
	})
	return facts
}

// flagHelp gives the help; that of --feature-gates is the list of gates, which gates tells one by one.
func flagHelp(flag *pflag.Flag) string {
	if flag.Name == "feature-gates" {
		return strings.SplitN(flag.Usage, "\n", 2)[0]
	}
	return flag.Usage
}

func gates() []string {
	var facts []string
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		stage := string(spec.PreRelease)
		if stage == "" {
			stage = "GA"
		}
		facts = append(facts, fact("gate", string(name), "stage", fmt.Sprintf("%s, default %t, locked %t", stage, spec.Default, spec.LockToDefault)))
	}
	return facts
}

// configuration gives the defaults of what /configz shows, by path.
func configuration() []string {
	config, err := options.NewDefaultComponentConfig()
	check(err)
	text, err := json.Marshal(config)
	check(err)
	var tree any
	check(json.Unmarshal(text, &tree))
	var facts []string
	var walk func(path string, value any)
	walk = func(path string, value any) {
		if fields, ok := value.(map[string]any); ok {
			for key, field := range fields {
				walk(strings.TrimPrefix(path+"."+key, "."), field)
			}
			return
		}
		facts = append(facts, fact("configuration", path, "default", fmt.Sprint(value)))
	}
	walk("", tree)
	return facts
}

// metrics gives type, labels, buckets and help of each metric in the packages of Kubernetes that this program links.
func metrics() []string {
	list := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}\t{{.Dir}}{{end}}", ".")
	list.Stderr = os.Stderr
	output, err := list.Output()
	check(err)
	var facts []string
	for line := range strings.Lines(string(output)) {
		path, folder, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if strings.HasPrefix(path, "k8s.io/") {
			facts = append(facts, metricsOf(path, folder)...)
		}
	}
	return facts
}

// metricsOf reads one package.
func metricsOf(path, folder string) []string {
	files := token.NewFileSet()
	sources, err := filepath.Glob(filepath.Join(folder, "*.go"))
	check(err)
	var trees []*ast.File
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(files, source, nil, parser.SkipObjectResolution)
		check(err)
		trees = append(trees, tree)
	}
	reader := packageReader{files: files, constants: map[string]ast.Expr{}}
	for _, tree := range trees {
		reader.learn(tree)
	}
	var facts []string
	for _, tree := range trees {
		ast.Inspect(tree, func(node ast.Node) bool {
			if call, ok := node.(*ast.CallExpr); ok {
				facts = append(facts, reader.metric(path, call)...)
			}
			return true
		})
	}
	return facts
}

// packageReader knows the constants and variables of one package.
type packageReader struct {
	files     *token.FileSet
	constants map[string]ast.Expr
}

func (r *packageReader) learn(tree *ast.File) {
	for _, declaration := range tree.Decls {
		general, ok := declaration.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range general.Specs {
			values, ok := spec.(*ast.ValueSpec)
			if !ok {
				continue
			}
			for i, name := range values.Names {
				if i < len(values.Values) {
					r.constants[name.Name] = values.Values[i]
				}
			}
		}
	}
}

// metric reads a call such as NewCounterVec(&CounterOpts{...}, []string{...}).
func (r *packageReader) metric(path string, call *ast.CallExpr) []string {
	if len(call.Args) == 0 {
		return nil
	}
	options := call.Args[0]
	if address, ok := options.(*ast.UnaryExpr); ok {
		options = address.X
	}
	literal, ok := options.(*ast.CompositeLit)
	if !ok || literal.Type == nil || !strings.HasSuffix(r.source(literal.Type), "Opts") {
		return nil
	}
	fields := map[string]ast.Expr{}
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			fields[r.source(pair.Key)] = pair.Value
		}
	}
	if fields["Name"] == nil || fields["Help"] == nil {
		return nil
	}
	var parts []string
	for _, key := range []string{"Namespace", "Subsystem", "Name"} {
		if text := r.text(fields[key]); text != "" {
			parts = append(parts, text)
		}
	}
	name := strings.Join(parts, "_")
	kind := r.source(call.Fun)
	kind = strings.TrimPrefix(kind[strings.LastIndex(kind, ".")+1:], "New")
	facts := []string{
		fact("metric", name, "type", kind),
		fact("metric", name, "help", r.text(fields["Help"])),
		fact("metric", name, "package", path),
	}
	if len(call.Args) > 1 {
		facts = append(facts, fact("metric", name, "labels", r.text(call.Args[1])))
	}
	for key, value := range fields {
		if key != "Namespace" && key != "Subsystem" && key != "Name" && key != "Help" {
			facts = append(facts, fact("metric", name, strings.ToLower(key), r.text(value)))
		}
	}
	return facts
}

// text gives the value of a string as far as this package alone tells it, and the source of everything else.
func (r *packageReader) text(expression ast.Expr) string {
	switch expression := expression.(type) {
	case nil:
		return ""
	case *ast.BasicLit:
		if text, err := strconv.Unquote(expression.Value); err == nil {
			return text
		}
	case *ast.Ident:
		if value, ok := r.constants[expression.Name]; ok {
			return r.text(value)
		}
	case *ast.ParenExpr:
		return r.text(expression.X)
	case *ast.BinaryExpr:
		if expression.Op == token.ADD {
			return r.text(expression.X) + r.text(expression.Y)
		}
	case *ast.CompositeLit:
		var elements []string
		for _, element := range expression.Elts {
			elements = append(elements, r.text(element))
		}
		return "[" + strings.Join(elements, " ") + "]"
	}
	return r.source(expression)
}

func (r *packageReader) source(node ast.Node) string {
	var text bytes.Buffer
	check(printer.Fprint(&text, r.files, node))
	return text.String()
}

// fact gives a line of fields apart by tabs, with no other line breaks or tabs in it.
func fact(fields ...string) string {
	for i, field := range fields {
		fields[i] = strings.Join(strings.Fields(field), " ")
	}
	return strings.Join(fields, "\t")
}
