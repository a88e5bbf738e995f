package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func (a *app) edit() *cobra.Command {
	return &cobra.Command{
		Use:   "edit KIND NAME",
		Short: "Change a record in an editor",
		Long: "Change labels, annotations and spec of a record in an editor: that of VISUAL or EDITOR, or vi. A change\n" +
			"is written where no one else has changed them meanwhile. What is refused is shown at the top of the file,\n" +
			"which is opened again. Without a change nothing is written.\n\n" +
			"The file is in a directory that only you may read, and is deleted afterwards. It is kept, and named, where\n" +
			"the change was not written. The values of a secret are hidden; those that you leave as they are stay. A file\n" +
			"that is kept has those that you wrote, in plain text: delete it.",
		Example: "  trivet edit machine m1\n  EDITOR='code --wait' trivet edit template debian",
		Args:    cobra.ExactArgs(2), ValidArgsFunction: a.completeRecord,
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, err := a.kind(args[0])
			if err != nil {
				return err
			}
			if kind.Info.ReadOnly {
				return fmt.Errorf("%w: %s are written by Trivet only", trivet.ErrForbidden, kind.Info.Plural)
			}
			return a.editRecord(cmd.Context(), kind, args[1])
		},
	}
}

// errChanged: someone else has changed the record since it was read.
var errChanged = fmt.Errorf("%w: the record was changed meanwhile", trivet.ErrConflict)

// maxEdits bounds how often a file is opened again, for editors that are programs.
const maxEdits = 100

// editing is the edit of one record.
type editing struct {
	*app
	kind client.Kind
	read *trivet.Meta // of the record, as it was read last
	file *editFile
}

func (a *app) editRecord(ctx context.Context, kind client.Kind, name string) error {
	raw, err := kind.Raw(ctx, name)
	if err != nil {
		return err
	}
	record := kind.Info.New()
	if err := json.Unmarshal(raw, record); err != nil {
		return err
	}
	// Who may not change it is refused before the edit.
	if _, err := kind.DryRun(true).Patch(ctx, name, []byte("{}"), 0); errors.Is(err, trivet.ErrForbidden) {
		return err
	}
	file, err := newEditFile(kind.Info, name, raw, a.hidesProject())
	if err != nil {
		return err
	}
	e := &editing{a, kind, record.Header(), file}
	verb, err := e.run(ctx)
	if err != nil {
		return e.keep(err)
	}
	fmt.Fprintf(a.Out, "%s %s\n", title(kind.Info, name), verb)
	return file.remove()
}

// run opens the editor until a change is written, or given up.
func (e *editing) run(ctx context.Context) (verb string, err error) {
	var refused error
	for range maxEdits {
		changed, err := e.open(ctx)
		if err != nil {
			return "", err
		}
		if !changed {
			return "unchanged", refused
		}
		patch, err := e.file.patch()
		if err == nil && patch == nil {
			return "unchanged", nil
		}
		if err == nil {
			err = e.write(ctx, patch)
		}
		if err == nil {
			return "edited", nil
		}
		if refused = e.file.locate(err); !canCorrect(err) {
			return "", refused
		}
		if err := e.file.refuse(err); err != nil {
			return "", err
		}
	}
	return "", refused
}

// open opens the file in the editor. After SIGTERM, nothing more is written.
func (e *editing) open(ctx context.Context) (changed bool, err error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	e.Signals.inEditor(func() { changed, err = e.file.open(e.app) })
	return changed, errors.Join(err, ctx.Err())
}

// canCorrect reports whether another edit may help.
func canCorrect(err error) bool {
	for _, target := range []error{trivet.ErrInvalid, trivet.ErrExists, trivet.ErrConflict, trivet.ErrTooLarge} {
		if errors.Is(err, target) && !errors.Is(err, errChanged) {
			return true
		}
	}
	return false
}

// write writes the change where the record is as it was read. A change of its status meanwhile does no harm.
func (e *editing) write(ctx context.Context, patch []byte) error {
	for range maxEdits {
		_, err := e.kind.Patch(ctx, e.read.Name, patch, e.read.Revision)
		if !errors.Is(err, trivet.ErrConflict) {
			return err
		}
		now, getErr := e.kind.Get(ctx, e.read.Name)
		if getErr != nil {
			return getErr
		}
		head := now.Header()
		switch {
		case head.Revision == e.read.Revision:
			return err // the change itself is refused
		case head.UID != e.read.UID || head.Generation != e.read.Generation ||
			!maps.Equal(head.Labels, e.read.Labels) || !maps.Equal(head.Annotations, e.read.Annotations):
			return errChanged
		}
		e.read = head
	}
	return errChanged
}

// keep returns the error of an edit that was not written, with where it is kept.
func (e *editing) keep(err error) error {
	if !e.file.edited {
		return errors.Join(err, e.file.remove())
	}
	fmt.Fprintf(e.Err, "the edit is kept in %s\n", e.file.path)
	if e.kind.Info.Kind == "Secret" {
		fmt.Fprintln(e.Err, "it may contain values in plain text; delete it when you are done")
	}
	if errors.Is(err, errChanged) {
		return &trivet.Error{Op: "edit", Kind: e.kind.Info.Kind, Name: e.read.Name, Err: err,
			Hint: "edit it again, and copy your change from the file that is kept"}
	}
	return err
}
