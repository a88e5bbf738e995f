package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) template() *cobra.Command {
	c := &cobra.Command{
		Use: "template", Short: "Test templates before machines are provisioned from them",
		Example: "  trivet template test debian --machine m1\n  trivet template list",
	}
	c.AddCommand(a.templateTest(), a.listCommand("templates"))
	return c
}

// templateTest is trivet template test.
type templateTest struct {
	provisionFlags
	file, name string
}

func (a *app) templateTest() *cobra.Command {
	var t templateTest
	c := &cobra.Command{
		Use:   "test [TEMPLATE] --machine MACHINE",
		Short: "Show what a provision would send to a machine, and change nothing",
		Long: "Show what a provision would send to a machine, and change nothing: the steps, and the actions with their\n" +
			"arguments, rendered and checked as they are when a provision claims the machine. With -f the template is\n" +
			"that of a file, which need not be applied; other records of the file are not used. The machine may be in\n" +
			"use: then it is shown what a provision would wait for.\n\n" +
			"User-data, network-data, passwords in URLs, and values with the name of a secret, such as a parameter\n" +
			"password or a variable API_TOKEN, are hidden; in texts, those of at least 6 characters. The exit status is\n" +
			"0 if the template renders.",
		Example: "  trivet template test debian --machine m1\n" +
			"  trivet template test debian --machine m1 --param disk=/dev/sda --hostname web1\n" +
			"  trivet template test -f debian.yaml --machine m1 -o yaml",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.completeNames("templates"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if t.template = ""; len(args) > 0 {
				t.template = args[0]
			}
			return a.testTemplate(cmd.Context(), &t)
		},
	}
	c.Flags().StringVarP(&t.file, "file", "f", "", "file with the template, or - for standard input")
	c.Flags().StringVar(&t.machine, "machine", "", "name of the machine")
	c.Flags().StringVar(&t.name, "name", "test", "name of the provision, for templates that use it")
	t.contentFlags(c)
	c.MarkFlagRequired("machine")
	c.RegisterFlagCompletionFunc("machine", a.completeFlag("machines"))
	a.outputForms(c, "table", "json", "yaml")
	return c
}

func (a *app) testTemplate(ctx context.Context, t *templateTest) error {
	file, err := a.templateFile(t)
	if err != nil {
		return err
	}
	p, err := t.record(t.name)
	if err != nil {
		return err
	}
	req := trivet.RenderRequest{Provision: *p}
	if file != nil {
		req.Template = file.record.(*trivet.Template)
		full := trivet.FullName(file.project(a), req.Template.Name)
		req.Provision.Spec.Template = trivet.RelativeName(a.project(), full)
	}
	cl, err := a.connect()
	if err != nil {
		return err
	}
	out, err := cl.Render(ctx, a.project(), req)
	if err != nil {
		return a.explainRender(ctx, cl, req.Provision.Spec.Template, file, err)
	}
	if a.output != "table" {
		return a.showValue(out)
	}
	return a.printRendered(out)
}

// templateFile returns the template of the file: the one that is named, or the only one. nil: no file is given.
func (a *app) templateFile(t *templateTest) (*manifest, error) {
	if t.file == "" && t.template == "" {
		return nil, fmt.Errorf("%w: name a template, or a file with one: -f FILE", trivet.ErrInvalid)
	}
	if t.file == "" {
		return nil, nil
	}
	all, err := a.readManifests([]string{t.file})
	if err != nil {
		return nil, err
	}
	var found []*manifest
	var names []string
	for _, m := range all {
		r, ok := m.record.(*trivet.Template)
		if ok && (t.template == "" || t.template == r.Name) {
			found, names = append(found, m), append(names, r.Name)
		}
	}
	switch {
	case len(found) == 0 && t.template != "":
		return nil, fmt.Errorf("%w: %s has no template %s", trivet.ErrInvalid, t.file, t.template)
	case len(found) == 0:
		return nil, fmt.Errorf("%w: %s has no template", trivet.ErrInvalid, t.file)
	case len(found) > 1:
		return nil, fmt.Errorf("%w: %s has several templates; name one of %s", trivet.ErrInvalid, t.file,
			strings.Join(names, ", "))
	}
	return found[0], nil
}

// explainRender returns what is wrong with its place in the template: in the file, or in what get -o yaml shows.
func (a *app) explainRender(ctx context.Context, cl *client.Client, name string, file *manifest, err error) error {
	if !errors.Is(err, trivet.ErrInvalid) {
		return err
	}
	if file != nil {
		return renderProblems(err, file.document)
	}
	return renderProblems(err, storedTemplate(ctx, cl, trivet.Resolve(a.project(), name)))
}

// storedTemplate returns a template as get -o yaml shows it; nil where it cannot be read.
func storedTemplate(ctx context.Context, cl *client.Client, full string) *document {
	info, err := trivet.LookupKind("templates")
	if err != nil {
		return nil
	}
	project, name := trivet.SplitName(full)
	raw, err := cl.Kind(info).In(project).Raw(ctx, name)
	if err != nil {
		return nil
	}
	text, err := yamlOf(raw, project == trivet.DefaultProject)
	if err != nil {
		return nil
	}
	docs, err := parseYAML("template/"+name, text)
	if err != nil || len(docs) != 1 {
		return nil
	}
	return docs[0]
}
