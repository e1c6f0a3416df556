use super::*;

fn arranged(words: &[&str], now: &[(u64, u64)]) -> Result<Vec<String>> {
    let mut settings: Vec<Setting> =
        words.iter().map(|word| Setting::parse(word, false)).collect::<Result<_>>()?;
    arrange_bounds(&mut settings, now)?;
    Ok(settings.into_iter().map(|setting| format!("{}={}", setting.pattern, setting.value)).collect())
}

/// Both bounds can be moved past the former other one with one command, whichever way.
#[test]
fn bounds_come_in_an_order_in_which_each_fits() {
    for words in [["at_min=50", "at_max=60"], ["at_max=60", "at_min=50"]] {
        let up = arranged(&words, &[(0, 10)]).unwrap_or_default();
        assert_eq!(up, ["at_max=60", "at_min=50"]);
        let down = arranged(&words, &[(100, 600)]).unwrap_or_default();
        assert_eq!(down, ["at_min=50", "at_max=60"]);
    }
    let without = arranged(&["at_min=50", "debug=info", "at_max=0"], &[(100, 600)]).unwrap_or_default();
    assert_eq!(without, ["at_max=0", "debug=info", "at_min=50"]);
}

/// Neither is set when they do not fit each other, or what a process has and keeps.
#[test]
fn bounds_that_do_not_fit_are_refused_before_the_first_is_set() {
    for now in [&[][..], &[(0, 600)]] {
        let error = arranged(&["at_min=50", "at_max=10"], now).map_err(|error| error.to_string());
        assert!(error.as_ref().is_err_and(|line| line.contains("at_min would be 50")), "{error:?}");
    }
    assert!(arranged(&["debug=info", "at_min=50"], &[(0, 600), (0, 10)]).is_err());
    assert!(arranged(&["debug=info", "at_max=50"], &[(60, 600)]).is_err());
    assert!(arranged(&["debug=info", "at_max=0"], &[(60, 600)]).is_ok());
    assert!(arranged(&["debug=info", "at_min=50"], &[(0, 0)]).is_ok());
}
