use super::*;

#[test]
fn banned_words_count_in_code_and_not_in_comments() {
    let text = "// std::fs is banned\nlet now = Instant::now();\nlet x = 1; // tokio";
    let found: Vec<_> = banned_lines(text, BANNED).collect();
    assert_eq!(found, vec![(2, "Instant::now")]);
}
