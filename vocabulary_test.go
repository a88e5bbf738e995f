package trivet_test

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// The project is written in the words of its field (docs/glossary.md). The tables below hold those that must not come
// back, each with what to write instead. Identifiers are split into their words, so "tellLeader" holds "tell".

// words are not written anywhere: not in identifiers, comments, texts, pages or names of files.
var words = map[string]string{
	"afresh":     "again, from the start",
	"anew":       "again",
	"anybody":    "anyone, or name the party",
	"beat":       "heartbeat, interval",
	"beats":      "heartbeats",
	"circle":     "PeerMonitor, peers",
	"crew":       "agent pool",
	"crews":      "agent pools",
	"door":       "server, handler, endpoint",
	"doors":      "servers, handlers, endpoints",
	"floor":      "layer",
	"floors":     "layers",
	"furnish":    "set up",
	"furnished":  "set up",
	"furnishes":  "sets up",
	"greet":      "ping",
	"greeted":    "pinged",
	"greeting":   "ping",
	"greets":     "pings",
	"happening":  "transition, event",
	"happenings": "transitions, events",
	"haste":      "backoff, interval",
	"hasty":      "early",
	"hears":      "receives",
	"hire":       "start",
	"hired":      "started",
	"hires":      "starts",
	"house":      "project",
	"nobody":     "no one, or name the party",
	"patience":   "timeout",
	"patient":    "with a timeout",
	"promise":    "lease",
	"promised":   "leased",
	"promises":   "leases",
	"said":       "reported, returned",
	"shall":      "must, will",
	"sight":      "PeerStatus, view",
	"sighting":   "boot progress, reached step",
	"sightings":  "boot progress, reached steps",
	"stranger":   "unauthenticated or unknown client",
	"strangers":  "unauthenticated or unknown clients",
	"suffer":     "inject",
	"suffered":   "injected",
	"suffers":    "injects",
	"sulk":       "backoff",
	"sulking":    "backing off",
	"sulks":      "backs off",
	"tell":       "report, notify, return",
	"telling":    "reporting",
	"tells":      "reports, notifies, returns",
	"told":       "reported, notified, last heard",
	"whoever":    "name the party",
	"wish":       "request, desired state",
	"wished":     "requested",
	"wishes":     "requests",
}

// phrases are words that are fine alone. They are found over the end of a line, too.
var phrases = map[string]string{
	"and then counts":    "and then votes",
	"be had":             "be available",
	"by turns":           "alternately",
	"counts for nothing": "does not vote",
	"first word":         "first message",
	"for ever":           "forever",
	"for lost":           "declared lost",
	"full head counts":   "full head votes",
	"had not heard":      "had not received",
	"head learns":        "head is a learner",
	"head that counts":   "head that votes",
	"is had":             "is available",
	"it learns until":    "it is a learner until",
	"its turn":           "its rank, when it is scheduled",
	"last word":          "last message",
	"last words":         "last output",
	"made anew":          "recreated",
	"on the word of":     "by",
	"put aside":          "archived, moved aside",
	"puts aside":         "archives, moves aside",
	"s turn":             "rank, when it is scheduled",
	"set aside":          "archived, moved aside",
	"sets aside":         "archives, moves aside",
	"whose turn":         "which owner, which rank",
	"without a word":     "silently",
}

// identifiers are whole names in Go code, as they are written there.
var identifiers = map[string]string{
	"Ask":     "JoinRequest, Request",
	"Hold":    "Cordoned, or what it holds",
	"Joining": "JoinResponse",
	"Mac":     "MAC",
	"Place":   "JoinResponse, or what is placed",
	"Seen":    "LastHeard, ReachedStep, BootProgress",
	"Tries":   "Retries, Attempts",
	"turn":    "rank, owner",
	"turns":   "ranks, owners",
}

// allowed are the uses of these words that are the field's own.
var allowed = []string{
	"cannot tell apart", "tell apart", "tell them apart", "tells apart", // the usual words for it
	"math floor",  // the function
	"user nobody", // the account of Unix
}

// vocabularyFiles are the files that are read: by how their names end, and by where they are.
func vocabularyFile(name string) bool {
	switch path.Ext(name) {
	case ".go", ".md", ".txt", ".ipxe", ".py", ".yaml":
		return name != "vocabulary_test.go"
	}
	return name == "Makefile" || strings.HasPrefix(name, "scripts/") || strings.HasPrefix(name, ".ci/")
}

func TestVocabulary(t *testing.T) {
	out, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		if !vocabularyFile(name) {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			continue // deleted, not committed yet
		}
		for _, f := range vocabularyOf(name, text) {
			t.Error(f)
		}
	}
}

// vocabularyOf returns what is wrong in one file, "file:line: word: write this".
func vocabularyOf(name string, text []byte) (findings []string) {
	report := func(line int, what, instead string) {
		findings = append(findings, fmt.Sprintf("%s:%d: %q: write %s", name, line, what, instead))
	}
	all := append(wordsOf(0, name), wordsOfText(name, text)...)
	for i, w := range all {
		if instead, ok := words[w.text]; ok && !allowedAt(all, i) {
			report(w.line, w.text, instead)
		}
		for phrase, instead := range phrases {
			if begins(all[i:], phrase) {
				report(w.line, phrase, instead)
			}
		}
	}
	if strings.HasSuffix(name, ".go") {
		eachIdentifier(text, func(line int, id string) {
			if instead, ok := identifiers[id]; ok {
				report(line, id, instead)
			}
		})
	}
	return findings
}

// word is one word in lower case and the line that it is in.
type word struct {
	text string
	line int
}

func wordsOfText(name string, text []byte) (all []word) {
	n := 0
	for line := range strings.Lines(string(text)) {
		if n++; !recorded(name, line) {
			all = append(all, wordsOf(n, line)...)
		}
	}
	return all
}

// recorded reports whether a line was written by a round of make chaos: what was measured once is not edited later.
func recorded(name, line string) bool {
	return name == "docs/chaos.md" && (strings.HasPrefix(line, "{") || strings.HasPrefix(line, "| Fault: "))
}

// wordsOf splits a line into words, and identifiers into theirs: "newHTTPDoor_2" is new, http, door.
func wordsOf(line int, s string) (out []word) {
	for i := 0; i < len(s); {
		if !isLower(s[i]) && !isUpper(s[i]) {
			i++
			continue
		}
		end := i + 1
		for end < len(s) && isUpper(s[i]) && isUpper(s[end]) && !(end+1 < len(s) && isLower(s[end+1])) {
			end++
		}
		if end-i == 1 || isLower(s[i]) {
			for end < len(s) && isLower(s[end]) {
				end++
			}
		}
		out = append(out, word{strings.ToLower(s[i:end]), line})
		i = end
	}
	return out
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }

// begins reports whether words begin with a phrase.
func begins(all []word, phrase string) bool {
	want := strings.Fields(phrase)
	same := func(w word, s string) bool { return w.text == s }
	return len(all) >= len(want) && slices.EqualFunc(all[:len(want)], want, same)
}

// allowedAt reports whether the word at i is part of an allowed phrase.
func allowedAt(all []word, i int) bool {
	return slices.ContainsFunc(allowed, func(phrase string) bool {
		for back := range min(i+1, len(strings.Fields(phrase))) {
			if strings.Fields(phrase)[back] == all[i].text && begins(all[i-back:], phrase) {
				return true
			}
		}
		return false
	})
}

// eachIdentifier calls f for each identifier of a Go file.
func eachIdentifier(text []byte, f func(line int, id string)) {
	var s scanner.Scanner
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(text))
	for s.Init(file, bytes.Clone(text), nil, 0); ; {
		pos, tok, id := s.Scan()
		if tok == token.EOF {
			return
		}
		if tok == token.IDENT {
			f(file.Line(pos), id)
		}
	}
}

// The test finds what it must: words within identifiers, phrases over the end of a line, whole identifiers, names of
// files.
func TestVocabularyIsFound(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"a.md", "The agent reports.\n", nil},
		{"a.md", "One.\nIt waits for\never.\n", []string{`a.md:2: "for ever": write forever`}},
		{"a.go", "package a\n\nfunc tellLeader() {}\n", []string{`a.go:3: "tell": write report, notify, return`}},
		{"a.go", "package a\n\nvar HTTPDoor int\n", []string{`a.go:3: "door": write server, handler, endpoint`}},
		{"a.go", "package a\n\n// Seen and Mac in a comment.\nvar seen = mac.Seen\n",
			[]string{`a.go:4: "Seen": write LastHeard, ReachedStep, BootProgress`}},
		{"door.go", "package a\n", []string{`door.go:0: "door": write server, handler, endpoint`}},
		{"a.md", "`whoami`, indoors, passwords; two machines that callers tell apart; math.Floor(x)\n", nil},
		{"docs/chaos.md", "{\"faults\":{\"leader hears nobody\":1}}\n", nil},
	} {
		if got := vocabularyOf(c.name, []byte(c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%s %q: %q, want %q", c.name, c.text, got, c.want)
		}
	}
}
