//! `/statusz` and `/flagz`: the version of this component and its flags, as Kubernetes components serve them
//! (KEP 4827 and KEP 4828). The format is text for people, or an object of `config.k8s.io` for programs,
//! which has to be named in the `Accept` header.

mod negotiation;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::super::responses::{self, Answer};
use crate::{
    metrics::start_time,
    serving::{ServingOptions, SetVerbosity},
    yaml,
};
use negotiation::{Encoding, Format, Version};

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.";

/// Both pages. Each one is served if its feature gate is on.
pub(super) struct Zpages {
    /// Name of the component.
    component: &'static str,
    statusz: Option<Statusz>,
    flagz: Option<Flags>,
}

/// All flags with their values. The verbosity changes while the daemon runs.
type Flags = Arc<Mutex<BTreeMap<String, String>>>;

struct Statusz {
    component: &'static str,
    /// Without the leading `v`, as in upstream.
    version: String,
    /// The first segments of the paths that are served.
    paths: Vec<&'static str>,
}

impl Zpages {
    pub(super) fn new(options: &ServingOptions) -> Self {
        let component = options.component;
        let flagz = options.flagz.clone().map(|flags| Arc::new(Mutex::new(flags)));
        let statusz = options.statusz.as_ref().map(|version| {
            let debug = options.profiling.then_some("/debug");
            let flagz = flagz.as_ref().map(|_| "/flagz");
            let always = ["/configz", "/healthz", "/livez", "/metrics", "/readyz"];
            let mut paths: Vec<_> = always.into_iter().chain(debug).chain(flagz).collect();
            paths.sort_unstable();
            Statusz { component, version: version.trim_start_matches('v').to_owned(), paths }
        });
        Self { component, statusz, flagz }
    }

    /// Changes the verbosity, and the value that the page shows.
    pub(super) fn following(&self, set: SetVerbosity) -> SetVerbosity {
        let Some(flags) = self.flagz.clone() else { return set };
        Arc::new(move |level| {
            set(level)?;
            let mut flags = flags.lock();
            flags.insert("v".to_owned(), level.to_string());
            Ok(())
        })
    }

    pub(super) fn statusz(&self, headers: &HeaderMap) -> Answer {
        let Some(statusz) = &self.statusz else { return responses::not_found() };
        let start = Duration::try_from_secs_f64(start_time().unwrap_or_default()).unwrap_or_default();
        statusz.answer(headers, start, Timestamp::now())
    }

    pub(super) fn flagz(&self, headers: &HeaderMap) -> Answer {
        let Some(flags) = &self.flagz else { return responses::not_found() };
        let flags = flags.lock();
        let text = || {
            let lines: Vec<String> = flags.iter().map(|(flag, value)| format!("{flag}={value}\n")).collect();
            format!("\n{} flagz\n{WARNING}\n{}", self.component, lines.concat())
        };
        negotiated(headers, self.component, "Flagz", text, || json!({"flags": *flags}))
    }
}

impl Statusz {
    /// `start`: since the Unix epoch.
    fn answer(&self, headers: &HeaderMap, start: Duration, now: Timestamp) -> Answer {
        let start = i64::try_from(start.as_secs()).ok().and_then(|start| Timestamp::from_second(start).ok());
        let start = start.unwrap_or(Timestamp::UNIX_EPOCH);
        let up = now.as_second().saturating_sub(start.as_second()).max(0);
        let text = || {
            format!(
                "\n{} statusz\n{WARNING}\n\nStarted: {}\nUp: {} hr {:02} min {:02} sec\nGo version: \n\
                 Binary version: {}\n\nPaths: {}\n",
                self.component,
                start.strftime("%a %b %e %H:%M:%S UTC %Y"),
                up / 3600,
                up / 60 % 60,
                up % 60,
                self.version,
                self.paths.join(" "),
            )
        };
        let object = || {
            json!({
                "startTime": start.to_string(),
                "uptimeSeconds": up,
                // This program does not use Go, but the field is required.
                "goVersion": "",
                "binaryVersion": self.version,
                "paths": self.paths,
            })
        };
        negotiated(headers, self.component, "Statusz", text, object)
    }
}

/// The page in the negotiated format.
fn negotiated(
    headers: &HeaderMap,
    component: &str,
    kind: &str,
    text: impl FnOnce() -> String,
    object: impl FnOnce() -> Value,
) -> Answer {
    let (encoding, version) = match negotiation::negotiate(headers, kind) {
        Some(Format::Text) => return responses::text(StatusCode::OK, text()),
        Some(Format::Object(encoding, version)) => (encoding, version),
        None => return responses::not_acceptable(&negotiation::media_types()),
    };
    let mut object = object();
    object["kind"] = kind.into();
    object["apiVersion"] = format!("{}/{}", negotiation::GROUP, version.as_str()).into();
    object["metadata"] = json!({"name": component});
    let mut answer = match encoding {
        Encoding::Json => responses::json(StatusCode::OK, &object),
        Encoding::Yaml => responses::text(StatusCode::OK, yaml::document(&object)),
    };
    let group = negotiation::GROUP;
    let media_type = format!("{};g={group};v={};as={kind}", encoding.media_type(), version.as_str());
    let headers = answer.headers_mut();
    if let Ok(media_type) = HeaderValue::try_from(media_type) {
        headers.insert(header::CONTENT_TYPE, media_type);
    }
    if version == Version::V1Alpha1 {
        let page = kind.to_ascii_lowercase();
        let warning = format!(
            "299 - \"This version of the {page} endpoint is deprecated. Please use a newer version.\""
        );
        if let Ok(warning) = HeaderValue::try_from(warning) {
            headers.insert(header::WARNING, warning);
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn options() -> ServingOptions {
        ServingOptions {
            statusz: Some("v1.2.3".into()),
            flagz: Some([("v", "0"), ("profiling", "true")].map(|(k, v)| (k.into(), v.into())).into()),
            ..ServingOptions::new("cloud-controller-manager", 0)
        }
    }

    fn accepting(accept: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::ACCEPT, HeaderValue::try_from(accept).expect("a value"))])
    }

    async fn body(answer: Answer) -> String {
        let bytes = answer.into_body().collect().await.expect("no error").to_bytes();
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    fn header_of<'a>(answer: &'a Answer, name: &str) -> &'a str {
        answer.headers().get(name).map_or("", |value| value.to_str().expect("text"))
    }

    #[tokio::test]
    async fn statusz_for_people() {
        let statusz = Zpages::new(&options()).statusz.expect("it is on");
        let now = Timestamp::from_second(1_785_000_000 + 100 * 3600 + 62).expect("a time");
        let answer = statusz.answer(&HeaderMap::new(), Duration::from_secs(1_785_000_000), now);
        assert_eq!(header_of(&answer, "content-type"), "text/plain; charset=utf-8");
        assert_eq!(
            body(answer).await,
            format!(
                "\ncloud-controller-manager statusz\n{WARNING}\n\nStarted: Sat Jul 25 17:20:00 UTC 2026\n\
                 Up: 100 hr 01 min 02 sec\nGo version: \nBinary version: 1.2.3\n\n\
                 Paths: /configz /debug /flagz /healthz /livez /metrics /readyz\n"
            )
        );
    }

    #[tokio::test]
    async fn statusz_for_programs() {
        let pages = Zpages::new(&ServingOptions { profiling: false, flagz: None, ..options() });
        let statusz = pages.statusz.as_ref().expect("it is on");
        let ask = |accept: &str| {
            let now = Timestamp::from_second(1_785_000_007).expect("a time");
            statusz.answer(&accepting(accept), Duration::from_secs(1_785_000_000), now)
        };
        let answer = ask("application/json;as=Statusz;v=v1beta1;g=config.k8s.io");
        let content_type = "application/json;g=config.k8s.io;v=v1beta1;as=Statusz";
        assert_eq!(header_of(&answer, "content-type"), content_type);
        assert_eq!(header_of(&answer, "warning"), "");
        let expected = json!({
            "kind": "Statusz", "apiVersion": "config.k8s.io/v1beta1",
            "metadata": {"name": "cloud-controller-manager"},
            "startTime": "2026-07-25T17:20:00Z", "uptimeSeconds": 7, "goVersion": "", "binaryVersion": "1.2.3",
            "paths": ["/configz", "/healthz", "/livez", "/metrics", "/readyz"],
        });
        assert_eq!(serde_json::from_str::<Value>(&body(answer).await).expect("JSON"), expected);

        let answer = ask("application/yaml;as=Statusz;v=v1alpha1;g=config.k8s.io");
        let content_type = "application/yaml;g=config.k8s.io;v=v1alpha1;as=Statusz";
        assert_eq!(header_of(&answer, "content-type"), content_type);
        assert!(
            header_of(&answer, "warning").contains("This version of the statusz endpoint is deprecated.")
        );
        let mut expected = expected;
        expected["apiVersion"] = "config.k8s.io/v1alpha1".into();
        let text = body(answer).await;
        assert_eq!(serde_saphyr::from_str::<Value>(&text).expect("YAML"), expected, "{text}");
    }

    #[tokio::test]
    async fn flagz_shows_each_flag_and_the_verbosity_of_now() {
        let pages = Zpages::new(&options());
        let refuse_seven: SetVerbosity =
            Arc::new(|level| if level == 7 { Err("no".to_owned()) } else { Ok(()) });
        let set = pages.following(refuse_seven);
        set(4).expect("can be set");
        set(7).expect_err("refused");
        let text = body(pages.flagz(&HeaderMap::new())).await;
        assert_eq!(text, format!("\ncloud-controller-manager flagz\n{WARNING}\nprofiling=true\nv=4\n"));
        let answer = pages.flagz(&accepting("application/json;v=v1beta1;g=config.k8s.io;as=Flagz"));
        let object: Value = serde_json::from_str(&body(answer).await).expect("JSON");
        let expected = json!({
            "kind": "Flagz", "apiVersion": "config.k8s.io/v1beta1",
            "metadata": {"name": "cloud-controller-manager"},
            "flags": {"profiling": "true", "v": "4"},
        });
        assert_eq!(object, expected);
    }

    #[tokio::test]
    async fn what_nobody_can_write_is_refused() {
        let answer = Zpages::new(&options()).flagz(&accepting("application/xml"));
        assert_eq!(answer.status(), StatusCode::NOT_ACCEPTABLE);
        let status: Value = serde_json::from_str(&body(answer).await).expect("JSON");
        assert_eq!(
            status,
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "only the following media types are accepted: application/json, application/yaml, text/plain",
                "reason": "NotAcceptable", "code": 406,
            })
        );
    }

    #[test]
    fn without_its_gate_there_is_no_page() {
        let pages = Zpages::new(&ServingOptions { statusz: None, flagz: None, ..options() });
        assert_eq!(pages.statusz(&HeaderMap::new()).status(), StatusCode::NOT_FOUND);
        assert_eq!(pages.flagz(&HeaderMap::new()).status(), StatusCode::NOT_FOUND);
    }
}
