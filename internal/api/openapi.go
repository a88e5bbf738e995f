package api

import (
	"bytes"
	"cmp"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/trivet-project/trivet"
)

// document is the OpenAPI document while it is written.
type document struct{ *huma.OpenAPI }

// openAPI writes the document of routes. Its descriptions are those of the reference.
func openAPI(version string, routes []route) []byte {
	d := document{newDocument(version)}
	for _, rt := range routes {
		d.add(rt)
	}
	d.permitMore()
	d.describe()
	text, err := d.MarshalJSON()
	if err != nil {
		panic("OpenAPI: " + err.Error()) // what routes and types have is written always
	}
	return bytes.Clone(text) // without the rest of its buffer, as it is kept
}

// schemaPrefix is what references to schemas begin with.
const schemaPrefix = "#/components/schemas/"

// newDocument returns an empty OpenAPI document.
func newDocument(version string) *huma.OpenAPI {
	return &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "Trivet", Version: version,
			Description: "The API of every head. Every error is a Problem, whose code is the kind of error."},
		Components: &huma.Components{
			Schemas:         huma.NewMapRegistry(schemaPrefix, huma.DefaultSchemaNamer),
			Parameters:      map[string]*huma.Param{trivet.HeaderRevision: requestRevision()},
			Headers:         responseHeaders(),
			SecuritySchemes: map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}},
		},
	}
}

func requestRevision() *huma.Param {
	return &huma.Param{Name: trivet.HeaderRevision, In: "header", Schema: &huma.Schema{Type: huma.TypeString},
		Description: "The highest revision that the client received: it reads what it has read and written, at any head. " +
			trivet.RevisionLatest + ": everything that was acknowledged before the request. A head that cannot reach it " +
			"responds 503, without a revision."}
}

func responseHeaders() map[string]*huma.Header {
	text := func(description string) *huma.Header {
		return &huma.Header{Description: description, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	return map[string]*huma.Header{
		trivet.HeaderRevision: text("A revision that the response is not older than. One that is lower than requested " +
			"is of another history: the cluster was restored."),
		trivet.HeaderStale: text("\"true\" in a response to a read where the head could not confirm by a quorum that " +
			"its copy is current. A response without it has all that was acknowledged two seconds before it."),
		trivet.HeaderHeads: text("The API URLs of all heads, separated by commas."),
		trivet.HeaderTrust: text("The pins of the cluster's CAs, separated by commas: sha256:, and the SHA-256 of " +
			"each certificate."),
	}
}

// documentHeaders adds the headers of a route that reads or writes records.
func documentHeaders(op *huma.Operation, ok *huma.Response) {
	op.Parameters = append(op.Parameters, &huma.Param{Ref: "#/components/parameters/" + trivet.HeaderRevision})
	ok.Headers = map[string]*huma.Header{}
	for _, name := range []string{trivet.HeaderRevision, trivet.HeaderStale, trivet.HeaderHeads, trivet.HeaderTrust} {
		if name != trivet.HeaderStale || op.Method == http.MethodGet {
			ok.Headers[name] = &huma.Header{Ref: "#/components/headers/" + name}
		}
	}
}

var inPath = regexp.MustCompile(`\{(\w+)(\.\.\.)?\}`)

// add adds a route.
func (d document) add(rt route) {
	op := &huma.Operation{
		Method: rt.method, Path: strings.ReplaceAll(rt.path, "...", ""), Summary: rt.summary,
		OperationID: operationID(rt), Tags: []string{tag(rt.path)},
		Responses: map[string]*huma.Response{
			"default": {Description: "Failure", Content: content("application/json",
				d.schema(reflect.TypeFor[trivet.Problem]()))},
		},
	}
	if rt.verb != "" {
		op.Security = []map[string][]string{{"token": {}}}
	}
	for _, m := range inPath.FindAllStringSubmatch(rt.path, -1) {
		op.Parameters = append(op.Parameters, &huma.Param{Name: m[1], In: "path", Required: true,
			Schema: &huma.Schema{Type: huma.TypeString}})
	}
	for _, q := range rt.query {
		name, what, _ := strings.Cut(q, ": ")
		op.Parameters = append(op.Parameters, &huma.Param{Name: name, In: "query", Description: what,
			Schema: &huma.Schema{Type: huma.TypeString}})
	}
	if rt.in != nil {
		op.RequestBody = &huma.RequestBody{Required: true, Content: content(cmp.Or(rt.media, "application/json"),
			d.schema(rt.in))}
	}
	ok := &huma.Response{Description: "Success"}
	switch {
	case rt.items != nil:
		ok.Content = content("application/json", d.listSchema(rt.items))
	case rt.out != nil:
		ok.Content = content(cmp.Or(rt.outputs, "application/json"), d.schema(rt.out))
	}
	if rt.verb != "" {
		documentHeaders(op, ok)
	}
	op.Responses[strconv.Itoa(cmp.Or(rt.status, http.StatusOK))] = ok
	d.AddOperation(op)
}

func content(media string, s *huma.Schema) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{media: {Schema: s}}
}

// schema returns the schema of a type.
func (d document) schema(t reflect.Type) *huma.Schema {
	return d.Components.Schemas.Schema(t, true, "")
}

// permitMore allows additional properties: a newer head may send some.
func (d document) permitMore() {
	for _, known := range d.Components.Schemas.Map() {
		if known.AdditionalProperties == false {
			known.AdditionalProperties = nil
		}
	}
}

// listSchema returns the schema of a page of records.
func (d document) listSchema(t reflect.Type) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, Required: []string{"items", "revision"},
		Properties: map[string]*huma.Schema{
			"items": {Type: huma.TypeArray, Items: d.schema(t), Description: "the records, by name"},
			"revision": {Type: huma.TypeInteger, Format: "int64",
				Description: "a watch from here misses nothing that the pages did not show"},
			"continue": {Type: huma.TypeString, Description: "parameter for the next page; absent on the last"},
		}}
}

func tag(path string) string {
	path = strings.TrimPrefix(path, inProject)
	part := strings.Split(strings.TrimPrefix(path, "/v1/"), "/")[0]
	return strings.TrimPrefix(cmp.Or(part, "head"), "/")
}

func operationID(rt route) string {
	replacer := strings.NewReplacer("/v1/", "-", "/", "-", "{", "", "}", "", "...", "", ".", "-")
	return strings.Trim(strings.ToLower(rt.method)+replacer.Replace(rt.path), "-")
}
