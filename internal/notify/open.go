package notify

import (
	"context"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
)

// Sender sends messages to one receiver. It must be closed.
type Sender interface {
	// Send sends messages in their order, and returns how many were delivered: fewer without an error where it took long.
	Send(ctx context.Context, messages []Message) (delivered int, err error)
	Close()
}

// Unseal returns one value of a secret.
type Unseal func(secret *trivet.Secret, key string) (string, error)

// Open returns the sender of a notifier. secret is the one that its spec names; nil: it names none.
func Open(n *trivet.Notifier, secret *trivet.Secret, unseal Unseal) (Sender, error) {
	if n.Spec.Mail != nil {
		return openMail(n.Spec.Mail, secret, unseal)
	}
	key, err := webhookKey(secret, trivet.WebhookKey, unseal)
	if err != nil {
		return nil, err
	}
	keys := [][]byte{key}
	if secret.Spec.Data[trivet.WebhookOldKey] != "" {
		old, err := webhookKey(secret, trivet.WebhookOldKey, unseal)
		if err != nil {
			return nil, err
		}
		keys = append(keys, old)
	}
	return NewWebhook(n.Spec.Webhook, keys...)
}

func openMail(spec *trivet.Mail, secret *trivet.Secret, unseal Unseal) (Sender, error) {
	if secret == nil {
		return NewMail(spec, "", "", nil)
	}
	for _, name := range []string{"user", "password"} {
		if secret.Spec.Data[name] == "" {
			return nil, fmt.Errorf("%w: secret %s has no value %q", trivet.ErrInvalid, secret.ShortName(), name)
		}
	}
	user, err := unseal(secret, "user")
	if err != nil {
		return nil, err
	}
	password, err := unseal(secret, "password")
	if err != nil {
		return nil, err
	}
	return NewMail(spec, user, password, secret.Spec.Allows)
}

func webhookKey(secret *trivet.Secret, name string, unseal Unseal) ([]byte, error) {
	if secret.Spec.Data[name] == "" {
		return nil, fmt.Errorf("%w: secret %s has no value %q", trivet.ErrInvalid, secret.ShortName(), name)
	}
	text, err := unseal(secret, name)
	if err != nil {
		return nil, err
	}
	key, err := trivet.ParseWebhookKey(text)
	if err != nil {
		return nil, fmt.Errorf("value %q of secret %s: %w", name, secret.ShortName(), err)
	}
	return key, nil
}

// maxSend is for how long one call of Send begins to send messages one by one.
const maxSend = 5 * time.Second

// Send implements [Sender]: one request for each message.
func (w *Webhook) Send(ctx context.Context, messages []Message) (delivered int, err error) {
	for start := time.Now(); delivered < len(messages); delivered++ {
		if delivered > 0 && time.Since(start) > maxSend {
			break
		}
		if err := w.send(ctx, &messages[delivered]); err != nil {
			return delivered, err
		}
	}
	return delivered, nil
}
