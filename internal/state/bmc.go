package state

import (
	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
)

// Unseal returns one value of a secret.
type Unseal func(secret *trivet.Secret, key string) (string, error)

// BMC returns how to reach the BMC of a machine, which must have one.
func (t *Tables) BMC(m *trivet.Machine, unseal Unseal) (cfg bmc.Config, err error) {
	cfg, err = t.BMCOf(m.Spec.BMC, unseal)
	cfg.UEFI = m.Status.Inventory != nil && m.Status.Inventory.Firmware == "uefi"
	return cfg, err
}

// BMCOf returns how to reach a BMC.
func (t *Tables) BMCOf(b *trivet.BMC, unseal Unseal) (cfg bmc.Config, err error) {
	secret, err := t.Secrets.Get(trivet.Resolve("", b.Secret))
	if err != nil {
		return cfg, err
	}
	user, err := unseal(secret, "user")
	if err != nil {
		return cfg, err
	}
	password, err := unseal(secret, "password")
	if err != nil {
		return cfg, err
	}
	hostKeys := ""
	if secret.Spec.Data[trivet.SecretHostKey] != "" {
		hostKeys, err = unseal(secret, trivet.SecretHostKey)
	}
	return bmc.Config{
		Protocol: b.Protocol, Command: b.Command, Address: b.Address,
		User: user, Password: password, Allows: secret.Spec.Allows, Insecure: secret.Spec.Insecure, HostKeys: hostKeys,
	}, err
}
