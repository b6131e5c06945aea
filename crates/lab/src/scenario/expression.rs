//! Arithmetic in a scenario: numbers, names, `+ - * / %` and parentheses.

/// Deepest nesting of parentheses and signs.
const DEEPEST: usize = 32;

/// Evaluates the expression `text` with the values of its names. The error is a sentence.
pub(super) fn evaluate(text: &str, value: &dyn Fn(&str) -> Result<f64, String>) -> Result<f64, String> {
    let mut reader = Reader { text, value, deep: 0 };
    let result = reader.sum()?;
    match reader.next() {
        None if result.is_finite() => Ok(result),
        None => Err("the result is not a finite number".to_owned()),
        Some(rest) => Err(format!("'{rest}' does not belong into an expression here")),
    }
}

struct Reader<'a> {
    text: &'a str,
    value: &'a dyn Fn(&str) -> Result<f64, String>,
    deep: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        self.text = self.text.trim_start();
        self.text.chars().next()
    }

    fn accept(&mut self, among: &[char]) -> Option<char> {
        let found = self.next().filter(|c| among.contains(c))?;
        self.text = &self.text[found.len_utf8()..];
        Some(found)
    }

    fn word(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let end = self.text.find(|c| !belongs(c)).unwrap_or(self.text.len());
        let (word, rest) = self.text.split_at(end);
        self.text = rest;
        word.to_owned()
    }

    fn sum(&mut self) -> Result<f64, String> {
        let mut left = self.product()?;
        while let Some(sign) = self.accept(&['+', '-']) {
            let right = self.product()?;
            left += if sign == '+' { right } else { -right };
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut left = self.factor()?;
        while let Some(sign) = self.accept(&['*', '/', '%']) {
            let right = self.factor()?;
            match sign {
                '*' => left *= right,
                _ if right == 0.0 => return Err("a division by zero".to_owned()),
                '/' => left /= right,
                _ => left = left.rem_euclid(right),
            }
        }
        Ok(left)
    }

    fn factor(&mut self) -> Result<f64, String> {
        self.deep += 1;
        if self.deep > DEEPEST {
            return Err("the expression is nested too deeply".to_owned());
        }
        let result = match self.next() {
            Some('(') => {
                self.accept(&['(']);
                let inner = self.sum()?;
                self.accept(&[')']).ok_or("a ')' is missing")?;
                Ok(inner)
            }
            Some('-') => {
                self.accept(&['-']);
                self.factor().map(|value| -value)
            }
            Some('$') => {
                self.accept(&['$']);
                let name = self.word(|c| c.is_alphanumeric() || c == '_');
                (self.value)(&name)
            }
            Some(c) if c.is_ascii_digit() => {
                let digits = self
                    .word(|c| c.is_ascii_digit() || c == '_' || c == '.')
                    .replace('_', "");
                digits.parse().map_err(|_| format!("'{digits}' is not a number"))
            }
            Some(c) => Err(format!("'{c}' stands where a number or a $name is due")),
            None => Err("a number or a $name is missing".to_owned()),
        };
        self.deep -= 1;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str) -> Result<f64, String> {
        match name {
            "speed" => Ok(10.0),
            _ => Err(format!("no '{name}'")),
        }
    }

    #[test]
    fn products_bind_closer_than_sums_and_names_have_values() {
        assert_eq!(evaluate("1 + 2 * 3", &known), Ok(7.0));
        assert_eq!(evaluate("(1+2)*3 - -1", &known), Ok(10.0));
        assert_eq!(evaluate("$speed * 250_000", &known), Ok(2_500_000.0));
        assert_eq!(evaluate("10 + 7 % 4 / 2", &known), Ok(11.5));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, reason) in [
            ("", "a number or a $name is missing"),
            ("1 / ($speed - 10)", "a division by zero"),
            ("$sped", "no 'sped'"),
            ("(1", "a ')' is missing"),
            ("1 2", "'2' does not belong into an expression here"),
            ("1.2.3", "'1.2.3' is not a number"),
            ("ü", "'ü' stands where a number or a $name is due"),
        ] {
            assert_eq!(evaluate(text, &known).unwrap_err(), reason, "{text}");
        }
        let deep = "(".repeat(100_000);
        assert_eq!(
            evaluate(&deep, &known).unwrap_err(),
            "the expression is nested too deeply"
        );
    }
}
