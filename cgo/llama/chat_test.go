//go:build llama

package llama

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestChatTemplate(t *testing.T) {
	if names := ChatTemplates(); !slices.Contains(names, "chatml") || slices.Contains(names, "") {
		t.Errorf("templates %q", names)
	}
	long := strings.Repeat("x", 5000)
	messages := []ChatMessage{{"system", "Be brief."}, {"user", long}}
	want := "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n" + long + "<|im_end|>\n"
	for _, template := range []string{"chatml", "{% for m in messages %}<|im_start|>{{ m.role }}{% endfor %}"} {
		if got, err := ApplyChatTemplate(template, messages, false); err != nil || got != want {
			t.Errorf("%s: %v: %.200q", template, err, got)
		}
	}
	if got, err := ApplyChatTemplate("chatml", messages, true); err != nil || got != want+"<|im_start|>assistant\n" {
		t.Errorf("with an answer begun: %v: %.200q", err, got)
	}
	for _, template := range []string{"{{ messages }}", ""} {
		if got, err := ApplyChatTemplate(template, messages, true); !errors.Is(err, ErrChatTemplate) {
			t.Errorf("%q: %v, %.200q", template, err, got)
		}
	}
	if _, err := ApplyChatTemplate("chatml", nil, true); err != nil {
		t.Errorf("no messages: %v", err)
	}
	if template, ok := loadDefault(t).ChatTemplate(); ok {
		t.Errorf("the embedded model has a template: %q", template)
	}
}
