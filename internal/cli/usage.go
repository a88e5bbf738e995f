package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
)

// A command line that cobra refuses is answered with what to write instead.

// setUsage adds the usage to the errors of a command's arguments, and of those below it.
func setUsage(c *cobra.Command) {
	for _, sub := range c.Commands() {
		setUsage(sub)
	}
	check := c.Args
	if check == nil || c.HasSubCommands() {
		return
	}
	c.Args = func(c *cobra.Command, args []string) error {
		err := check(c, args)
		if err == nil {
			return nil
		}
		if strings.HasPrefix(err.Error(), "unknown command") { // of a command that has no arguments
			err = fmt.Errorf("%q is not expected", args[0])
		}
		return fmt.Errorf("%w; usage: %s", err, c.UseLine())
	}
}

// flagError says what to write in place of a wrong flag.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var value *pflag.InvalidValueError
	var valueless *pflag.ValueRequiredError
	switch {
	case errors.As(err, &unknown) && c.HasSubCommands() && c.Flags().NArg() > 0:
		if wrong := c.ValidateArgs(c.Flags().Args()); wrong != nil {
			return wrong // the flag is of the command that was meant
		}
	case errors.As(err, &unknown):
		return fmt.Errorf("%w%s; see %s --help", err, nearestFlag(c, unknown), c.CommandPath())
	case errors.As(err, &valueless):
		return fmt.Errorf("%w; see %s --help", err, c.CommandPath())
	case errors.As(err, &value):
		if form := valueForms[value.GetFlag().Value.Type()]; form != "" {
			return fmt.Errorf("--%s: %.80q is not %s", value.GetFlag().Name, value.GetValue(), form)
		}
	}
	return err
}

// valueForms are what to write for the types of flags.
var valueForms = map[string]string{
	"int":            "a whole number",
	"bool":           "true or false",
	"duration":       "a duration; write 30s, 5m or 1h30m",
	"stringToString": "NAME=VALUE",
}

func nearestFlag(c *cobra.Command, unknown *pflag.NotExistError) string {
	known := map[string]bool{}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known[f.Name] = true
		}
	})
	near := apitypes.Nearest(unknown.GetSpecifiedName(), known)
	if near == "" || unknown.GetSpecifiedShortnames() != "" {
		return ""
	}
	return "; did you mean --" + near + "?"
}

// lookupKind is trivet.LookupKind, with the kind that may be meant.
func lookupKind(name string) (trivet.KindInfo, error) {
	info, err := trivet.LookupKind(name)
	if err == nil {
		return info, nil
	}
	if kind, record, ok := strings.Cut(name, "/"); ok {
		if _, wrong := trivet.LookupKind(kind); wrong == nil {
			return info, fmt.Errorf("%w: write a space in place of the slash: %s %s", trivet.ErrInvalid, kind, record)
		}
	}
	known := map[string]bool{}
	for _, k := range trivet.Kinds {
		known[k.Plural], known[strings.ToLower(string(k.Kind))] = true, true
	}
	if near := apitypes.Nearest(name, known); near != "" {
		return info, fmt.Errorf("%w: unknown kind %.80q; did you mean %s?", trivet.ErrInvalid, name, near)
	}
	return info, err
}

// How cobra names flags that are missing, or exclude each other.
var (
	missingFlags   = regexp.MustCompile(`^required flag\(s\) (.*) not set$`)
	excludingFlags = regexp.MustCompile(`^if any flags in the group .* none of the others can be; \[(.*)\] were all set$`)
)

// usageError adds to an error of a command's flags what to write.
func usageError(c *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	if m := missingFlags.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("%w; write --%s; see %s --help", err,
			strings.ReplaceAll(strings.ReplaceAll(m[1], `"`, ""), ", ", " and --"), c.CommandPath())
	}
	if m := excludingFlags.FindStringSubmatch(err.Error()); m != nil {
		names := strings.ReplaceAll(m[1], " ", " and --")
		return fmt.Errorf("--%s exclude each other: where one is set, none of the others can be", names)
	}
	return err
}
