//! Flags and their values in Go's notation, for `/flagz` and `/configz`.

use std::{collections::BTreeMap, time::Duration};

use basics::go::format_duration;
use clap::{ArgMatches, Command};

use crate::classified::without_secrets;

/// Every flag that was given or has a default, with its value. The value of any other flag is empty.
pub fn shown(command: &Command, matches: &ArgMatches) -> BTreeMap<String, String> {
    command
        .get_arguments()
        .filter_map(|arg| {
            let flag = arg.get_long()?;
            Some((flag.to_owned(), without_secrets(flag, &value(matches, arg.get_id().as_str()))))
        })
        .collect()
}

/// A value in Go's notation. A value of any other type stays as it was given.
fn value(matches: &ArgMatches, id: &str) -> String {
    if let Ok(Some(value)) = matches.try_get_one::<bool>(id) {
        return value.to_string();
    }
    if let Ok(Some(value)) = matches.try_get_one::<Duration>(id) {
        return format_duration(*value);
    }
    if let Ok(Some(value)) = matches.try_get_one::<i32>(id) {
        return value.to_string();
    }
    if let Ok(Some(value)) = matches.try_get_one::<i64>(id) {
        return value.to_string();
    }
    if let Ok(Some(list)) = matches.try_get_one::<Vec<String>>(id) {
        return format!("[{}]", list.join(","));
    }
    if let Ok(Some(list)) = matches.try_get_one::<Vec<i32>>(id) {
        let list: Vec<String> = list.iter().map(ToString::to_string).collect();
        return format!("[{}]", list.join(","));
    }
    let raw = matches.try_get_raw(id).ok().flatten();
    let texts: Vec<_> = raw.into_iter().flatten().map(|text| text.to_string_lossy()).collect();
    texts.join(",")
}
