package guide_test

import (
	"fmt"
	"regexp"
	"strings"
)

// step is one step of a page: a command, a file that the page shows, or an event.
type step struct {
	line    int
	person  string // who runs the command; empty: the operator
	command string
	want    []string // lines of its output; nil: what it prints is not shown
	any     bool     // the exit status is not expected to be 0, as the next command prints it
	file    string   // the name of a file, whose content is content
	content string
	event   string // what happens outside of the page's commands
}

var (
	prompt    = regexp.MustCompile(`^(\w*)\$ (.*)$`)
	fileName  = regexp.MustCompile("`([\\w.-]+)`:$")
	eventLine = regexp.MustCompile(`^<!-- test: (.*) -->$`)
)

// parse reads the steps of a page: blocks of sh, which are commands without their output, and of console, which have
// it; blocks of other languages that follow the name of a file; and comments that say what happens.
func parse(page string) (all []step, err error) {
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		if m := eventLine.FindStringSubmatch(lines[i]); m != nil {
			all = append(all, step{line: i + 1, event: m[1]})
			continue
		}
		language, begins := strings.CutPrefix(lines[i], "```")
		if !begins {
			continue
		}
		first := i + 1
		for i++; i < len(lines) && lines[i] != "```"; i++ {
		}
		if i == len(lines) {
			return nil, fmt.Errorf("line %d: the block has no end", first)
		}
		block, before := lines[first:i], strings.Join(lines[max(0, first-3):first-1], "")
		switch name := fileName.FindStringSubmatch(before); {
		case language == "sh":
			all = append(all, step{line: first + 1, command: strings.Join(block, "\n")})
		case language == "console":
			commands, err := transcript(block, first+1)
			if err != nil {
				return nil, err
			}
			all = append(all, commands...)
		case language != "" && name != nil:
			all = append(all, step{line: first + 1, file: name[1], content: strings.Join(block, "\n") + "\n"})
		default:
			return nil, fmt.Errorf("line %d: a block of %q that is not executed", first, language)
		}
	}
	return all, nil
}

// transcript reads commands with their output. A command goes on in the next line after a backslash.
func transcript(block []string, line int) (all []step, err error) {
	for i := 0; i < len(block); i++ {
		m := prompt.FindStringSubmatch(block[i])
		switch {
		case m != nil:
			s := step{line: line + i, person: m[1], command: m[2], want: []string{}}
			for ; strings.HasSuffix(block[i], `\`) && i+1 < len(block); i++ {
				s.command += "\n" + block[i+1]
			}
			if n := len(all); n > 0 && s.command == "echo $?" {
				all[n-1].any = true
			}
			all = append(all, s)
		case len(all) == 0:
			return nil, fmt.Errorf("line %d: output without a command", line+i)
		default:
			last := &all[len(all)-1]
			last.want = append(last.want, block[i])
		}
	}
	return all, nil
}

// varies is what differs from run to run, and is compared by its form only: durations, times of day with their date.
var varies = []struct{ example, form *regexp.Regexp }{
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b`), regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`)},
	{regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+(\.\d+)?m?s\b`), regexp.MustCompile(`(?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?m?s`)},
}

// pattern returns the expression that the output must match. "..." stands for any text of a line, and in a line of its
// own for any lines. The number of spaces between words does not matter.
func pattern(want []string) string {
	var b strings.Builder
	for _, line := range want {
		if strings.TrimSpace(line) == "..." {
			b.WriteString(`(?:.*\n)*?`)
			continue
		}
		b.WriteString(` *` + linePattern(strings.TrimSpace(line)) + ` *\n`)
	}
	return `\A` + b.String() + `\z`
}

// linePattern returns the expression of one line, or one word.
func linePattern(text string) string {
	for _, v := range varies {
		if at := v.example.FindStringIndex(text); at != nil {
			return linePattern(text[:at[0]]) + v.form.String() + linePattern(text[at[1]:])
		}
	}
	text = strings.ReplaceAll(regexp.QuoteMeta(text), `\.\.\.`, `.*?`)
	return regexp.MustCompile(` +`).ReplaceAllString(text, ` +`)
}

// matches reports whether an output is the one that a page shows.
func matches(want []string, output string) bool {
	return want == nil || regexp.MustCompile(pattern(want)).MatchString(output)
}

var abbreviated = regexp.MustCompile(`[^\s'"=]*\.\.\.[^\s'"]*`)

// complete replaces each word of a command that has "..." by the latest one like it that was printed.
func complete(command, printed string) string {
	return abbreviated.ReplaceAllStringFunc(command, func(word string) string {
		like := strings.ReplaceAll(regexp.QuoteMeta(word), `\.\.\.`, `[^\s'"=]+`)
		all := regexp.MustCompile(`(?m)(?:^|[\s=])(`+like+`)(?:$|\s)`).FindAllStringSubmatch(printed, -1)
		if len(all) == 0 {
			return word
		}
		return all[len(all)-1][1]
	})
}
