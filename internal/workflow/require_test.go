package workflow

import (
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

// A text that needs a fact of the network fails while the fact is not known, and names it. Conditions and defaults
// are how a template does without.
func TestEmptyFactsOfTheNetwork(t *testing.T) {
	for text, want := range map[string]string{
		"ip={{.Network.Address}}":                            ".Network.Address, which is empty",
		"{{printf \"%s/24\" .Network.Address}}":              ".Network.Address, which is empty",
		"{{.Network.Gateway | upper}}":                       ".Network.Gateway, which is empty",
		"{{join \",\" .Network.DNS}}":                        ".Network.DNS, which is empty",
		"{{if .Network.Name}}{{.Network.Domain}}{{end}}":     ".Network.Domain, which is empty",
		"{{if .Network.Gateway}}{{.Network.Gateway}}{{end}}": "",
		"{{default \"none\" .Network.Gateway}}":              "",
		"{{.Network.Gateway | default \"none\"}}":            "",
		"{{.Network.Name}} {{.Machine.Rack}}":                "",
	} {
		data := Data{Network: NetworkData{Name: "lan"}}
		_, err := Render(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"}, Spec: trivet.TemplateSpec{
			Actions: []trivet.Action{{Name: "a", Use: "file", With: map[string]any{"content": text}}}}}, data)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(),
			"spec.actions[0].with.content uses "+want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
