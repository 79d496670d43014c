//! The manual page.

/// The page in roff.
///
/// # Errors
/// Never, since it is written to memory.
pub fn man() -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(super::command()).section("8").render(&mut page)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_has_the_flags() {
        let page = String::from_utf8(super::man().expect("a page")).expect("text");
        assert!(page.contains(".TH cloud-controller-manager 8") && page.contains("leader\\-elect"), "{page}");
    }
}
