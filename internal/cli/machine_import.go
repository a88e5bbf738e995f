package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/machinelist"
)

func (a *app) machine() *cobra.Command {
	c := &cobra.Command{
		Use: "machine", Short: "Import and list machines",
		Example: "  trivet machine import rack7.csv --secret bmc\n  trivet machine list",
	}
	c.AddCommand(a.machineImport(), a.listCommand("machines"))
	return c
}

// importList is what machine import is given besides a file.
type importList struct {
	machinelist.Options
	dryRun bool
}

func (a *app) machineImport() *cobra.Command {
	var o importList
	c := &cobra.Command{
		Use:   "import FILE",
		Short: "Create machines from a list: CSV, or an export of MAAS, Tinkerbell or Metal3",
		Long: "Create machines from a list; - is the standard input. A machine that exists already is not changed.\n\n" +
			"CSV: the first line names the columns name, mac, address, arch, rack, platform, bmc (ipmi://HOST,\n" +
			"https://HOST or HOST), bmc-protocol, bmc-secret, disk, disk-serial, disk-wwn and label:KEY. Several ports\n" +
			"are separated by spaces.\n" +
			"MAAS: the JSON of maas PROFILE machines read. Tinkerbell: Hardware, and Machine of bmc.tinkerbell.org.\n" +
			"Metal3: BareMetalHost. Both as YAML or JSON, as kubectl get -o yaml prints them.\n\n" +
			"Of exports, a machine that is in use, or of which that is not known, is cordoned: no provision\n" +
			"overwrites it until spec.cordoned is removed. What has no place in a Machine is printed as a note.\n" +
			"Nothing is sent where a line is wrong, such as one with a BMC for which neither the line nor --secret names\n" +
			"the Secret with its user and password. -o yaml prints the machines, and sends nothing.",
		Example: "  trivet machine import rack7.csv --secret bmc --dry-run\n" +
			"  maas admin machines read | trivet machine import -\n" +
			"  kubectl get hardware,machines.bmc.tinkerbell.org -A -o yaml | trivet machine import - -o yaml\n" +
			"  kubectl get bmh -A -o json | trivet machine import - --secret bmc",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := a.readList(args[0], o.Options)
			if err != nil {
				return err
			}
			if a.output == "yaml" {
				return a.printList(list)
			}
			cl, err := a.connect()
			if err != nil {
				return err
			}
			return a.importAll(cmd.Context(), cl, list, o.dryRun)
		},
	}
	c.Flags().StringVar(&o.Secret, "secret", "", "Secret with user and password of BMCs for which the list names none")
	c.Flags().BoolVar(&o.Addresses, "addresses", false,
		"also the fixed addresses of exports; those of CSV files always are")
	c.Flags().BoolVar(&o.Available, "available", false,
		"do not cordon machines of which an export does not say whether they are in use")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "validate the machines on the server without creating them")
	a.outputForms(c, "table", "yaml")
	return c
}

// readList reads a list of machines, prints its notes, and fails where a machine of it is wrong.
func (a *app) readList(file string, o machinelist.Options) ([]*machinelist.Entry, error) {
	text, err := a.readFile(file)
	if err != nil {
		return nil, err
	}
	file = shown(file)
	docs, err := documents(file, text)
	if err != nil {
		return nil, err
	}
	list, err := machinelist.Read(text, docs, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var wrong []error
	for _, e := range list {
		if e.Err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %s (%s): %w", file, e.Where, orDefault(e.Machine.Name, "-"), e.Err))
		}
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	for _, e := range list {
		for _, note := range e.Notes {
			fmt.Fprintf(a.Err, "trivet: note: machine/%s: %s\n", e.Machine.Name, note)
		}
	}
	return list, nil
}

// documents returns the documents of an export; nil for a CSV file. JSON is read as such: an export of a large site has
// more values than a YAML file may have.
func documents(file string, text []byte) (all []any, err error) {
	if machinelist.IsCSV(text) {
		return nil, nil
	}
	if json.Valid(text) {
		var value any
		err := json.Unmarshal(text, &value)
		return []any{value}, err
	}
	if start := bytes.TrimSpace(text); bytes.HasPrefix(start, []byte("[")) || bytes.HasPrefix(start, []byte("{")) {
		return nil, fmt.Errorf("%s: %w: it is no valid JSON; was all of it written?", file, trivet.ErrInvalid)
	}
	docs, err := parseYAML(file, text)
	all = []any{}
	for _, d := range docs {
		all = append(all, d.value)
	}
	return all, err
}

// printList prints the machines as records.
func (a *app) printList(list []*machinelist.Entry) error {
	var all []json.RawMessage
	for _, e := range list {
		text, err := json.Marshal(e.Machine)
		if err != nil {
			return err
		}
		all = append(all, text)
	}
	return a.showYAML(all)
}

// importAll creates all machines, also after one that cannot be created.
func (a *app) importAll(ctx context.Context, cl *client.Client, list []*machinelist.Entry, dryRun bool) error {
	note, failed, created := "", 0, 0
	if dryRun {
		note = " (dry run)"
	}
	info, err := trivet.LookupKind("Machine")
	if err != nil {
		return err
	}
	for i, e := range list {
		done, err := importMachine(ctx, cl.Kind(info).DryRun(dryRun), e.Machine)
		if err != nil && ctx.Err() != nil {
			return a.interrupted(ctx, err, "interrupted at machine/%s, %d of %d; run the same command again to import "+
				"the rest", e.Machine.Name, i+1, len(list))
		}
		if err != nil {
			failed++
			PrintError(a.Err, err)
			continue
		}
		if done == "created" {
			created++
		}
		fmt.Fprintf(a.Out, "machine/%s %s%s\n", e.Machine.Name, done, note)
	}
	fmt.Fprintf(a.Err, "%d of %d machines created%s; %d failed\n", created, len(list), note, failed)
	if failed > 0 {
		return ExitError(1)
	}
	return nil
}

// importMachine creates a machine, unless it exists as it is.
func importMachine(ctx context.Context, kind client.Kind, m *trivet.Machine) (done string, err error) {
	_, err = kind.Create(ctx, m)
	if !errors.Is(err, trivet.ErrExists) {
		return "created", err
	}
	refused := err
	old, err := kind.Get(ctx, m.Name)
	if errors.Is(err, trivet.ErrNotFound) { // what exists is its MAC, at another machine
		return "", refused
	}
	if err != nil {
		return "", err
	}
	other, err := otherFields(old, m)
	if err != nil || len(other) == 0 {
		return "unchanged", err
	}
	return "", &trivet.Error{Op: "import", Kind: "Machine", Name: m.Name,
		Err:  fmt.Errorf("%w, and differs from the list in %s", trivet.ErrExists, strings.Join(other, ", ")),
		Hint: "to change it, write the list as records, and apply those: trivet machine import FILE -o yaml"}
}

// otherFields returns the fields of what people write that a record has otherwise than a list.
func otherFields(is, want trivet.Record) (paths []string, err error) {
	a, errIs := writtenFields(is)
	b, errWant := writtenFields(want)
	for _, part := range []string{"labels", "annotations", "spec"} {
		paths = append(paths, apitypes.ChangedFields(part, a[part], b[part], 3)...)
	}
	return paths, errors.Join(errIs, errWant)
}

// writtenFields returns the fields of a record by its parts.
func writtenFields(r trivet.Record) (map[string]any, error) {
	parts := map[string]any{"labels": map[string]any{}, "annotations": map[string]any{}, "spec": map[string]any{}}
	text, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(text, &parts)
	}
	return parts, err
}
