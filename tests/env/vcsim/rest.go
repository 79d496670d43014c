package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
)

// rest is a session of the Automation REST in the process: not counted, and not broken by rules.
type rest struct {
	world   *world
	session string
}

func (w *world) openRest() (*rest, error) {
	rest := &rest{world: w}
	return rest, rest.call(http.MethodPost, "/cis/session", nil, &rest.session)
}

func (r *rest) close() {
	_ = r.call(http.MethodDelete, "/cis/session", nil, nil)
}

func (r *rest) call(method, path string, body, result any) error {
	var encoded bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&encoded).Encode(body); err != nil {
			return err
		}
	}
	request := httptest.NewRequest(method, legacyRest+path, &encoded)
	r.world.mutex.Lock()
	user, password := r.world.user, r.world.password
	r.world.mutex.Unlock()
	if r.session == "" {
		request.SetBasicAuth(user, password)
	}
	request.Header.Set(restHeader, r.session)
	request.Header.Set("vmware-use-header-authn", "true")
	recorder := httptest.NewRecorder()
	r.world.backend.ServeHTTP(recorder, request)
	if recorder.Code/100 != 2 {
		return fmt.Errorf("%s %s: status %d: %s", method, path, recorder.Code, recorder.Body)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(recorder.Body.Bytes(), &struct{ Value any }{result})
}

// find is the id of the category or tag with this name, made from spec if there is none.
func (r *rest) find(kind, name, category string, spec map[string]any) (string, error) {
	var ids []string
	if err := r.call(http.MethodGet, "/cis/tagging/"+kind, nil, &ids); err != nil {
		return "", err
	}
	for _, id := range ids {
		var found struct {
			Name     string `json:"name"`
			Category string `json:"category_id"`
		}
		if err := r.call(http.MethodGet, "/cis/tagging/"+kind+"/id:"+id, nil, &found); err != nil {
			return "", err
		}
		if found.Name == name && found.Category == category {
			return id, nil
		}
	}
	var id string
	err := r.call(http.MethodPost, "/cis/tagging/"+kind, map[string]any{"create_spec": spec}, &id)
	return id, err
}
