package provider

import (
	"errors"
	"strings"
	"unicode"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/trivet-project/trivet"
)

// problem returns the diagnostic of an error: what failed, the head's message, its hint, and what to do in Terraform.
func problem(op string, err error) diag.Diagnostic {
	text, hint := err.Error(), hintOf(err)
	if hint != "" {
		text = strings.Replace(text, " ("+hint+")", "", 1)
	}
	for _, more := range []struct{ label, text string }{{"Hint: ", hint}, {"In Terraform: ", nextStep(err)}} {
		if more.text != "" {
			text += "\n\n" + more.label + more.text
		}
	}
	return diag.NewErrorDiagnostic("Cannot "+printable(op), printable(text))
}

// hintOf returns what the head, or the client, recommends.
func hintOf(err error) string {
	var p *trivet.Problem
	var own *trivet.Error
	switch {
	case errors.As(err, &p) && p.Hint != "":
		return p.Hint
	case errors.As(err, &p) && p.Code == trivet.CodeInternal && p.RequestID != "":
		return "see request " + p.RequestID + " in the head's log"
	case errors.As(err, &own):
		return own.Hint
	}
	return ""
}

// nextStep returns what to do in Terraform.
func nextStep(err error) string {
	switch {
	case errors.Is(err, errChanged):
		return "refresh and decide again: terraform plan shows what is changed now, terraform apply applies it"
	case errors.Is(err, trivet.ErrExists):
		return "to manage what exists, import it: terraform import ADDRESS NAME, or PROJECT/NAME outside the default project"
	case errors.Is(err, trivet.ErrUnknown):
		return "the change may have been made: terraform plan shows what is still missing"
	case errors.Is(err, trivet.ErrUnauthenticated):
		return "check server, trust and token of the provider, or the context that it uses"
	case errors.Is(err, trivet.ErrForbidden):
		return "use the token of an account with a higher role; trivet whoami shows the account of a token"
	}
	return ""
}

// printable replaces control characters, which text from machines may have.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
