package auth

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// The formats of Trivet's credentials.
var (
	tokenForm = regexp.MustCompile(`\b(trivet_[a-z2-7]{16})_[a-z2-7]{52}\b`)
	bootForm  = regexp.MustCompile(`\b(tb1(?:~[^~\s]*){6}~)[-_.A-Za-z0-9]+`)
	agentForm = regexp.MustCompile(`\b(Trivet-Agent v=2,[^\s]*sig=)[-_A-Za-z0-9]+`)
)

// Redact hides the secret part of all API tokens, boot tokens and agent signatures in a text, and keeps their IDs.
// Use it for foreign text that is logged, such as a kernel command line or a request line.
func Redact(text string) string {
	text = tokenForm.ReplaceAllString(text, "${1}_"+hidden)
	text = bootForm.ReplaceAllString(text, "${1}"+hidden)
	return agentForm.ReplaceAllString(text, "${1}"+hidden)
}

// secretName matches the names of headers, parameters and variables whose values are hidden, in lower case with _ between
// words: by what they contain, by a word, and by their end, which is not that of bypass.
var secretName = regexp.MustCompile(`token|secret|passw|passphrase|signature|credential|authorization|cookie` +
	`|api_?key|(^|_)pass(_|$)|(^|_)(private|sig)$|(key|pwd|psk|[^y]pass)_?[0-9]*$`)

// innerWord is where a word begins within a name such as privateKey.
var innerWord = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// IsSecretName reports whether a value of this name may be secret: of dbPassword, DB_PWD or luks-key.
func IsSecretName(name string) bool {
	words := strings.ReplaceAll(innerWord.ReplaceAllString(name, "${1}_$2"), "-", "_")
	return secretName.MatchString(strings.ToLower(words))
}

// IsSecretParameter reports whether the value of a parameter may be secret that has this name in a URL.
func IsSecretParameter(raw string) bool {
	name, err := url.QueryUnescape(raw)
	return err != nil || IsSecretName(name)
}

// RedactURL returns a URL for logs: without the password, the values of secret parameters, and Trivet's tokens.
func RedactURL(u *url.URL) string {
	c := *u
	if c.User != nil {
		if _, has := c.User.Password(); has {
			c.User = url.UserPassword(c.User.Username(), "hidden")
		}
	}
	parts := strings.Split(c.RawQuery, "&")
	for i, part := range parts {
		raw, _, has := strings.Cut(part, "=")
		if has && IsSecretParameter(raw) {
			parts[i] = raw + "=" + hidden
		}
	}
	c.RawQuery = strings.Join(parts, "&")
	return Redact(c.String())
}

// RedactHeader returns a copy of h for logs, without credentials.
func RedactHeader(h http.Header) http.Header {
	c := h.Clone()
	for name, values := range c {
		for i, v := range values {
			if IsSecretName(name) {
				scheme, _, _ := strings.Cut(v, " ")
				values[i] = hidden
				if strings.EqualFold(name, "Authorization") && scheme != v && len(scheme) < 32 {
					values[i] = scheme + " " + hidden
				}
				continue
			}
			values[i] = Redact(v)
		}
	}
	return c
}
