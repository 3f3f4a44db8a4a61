//! The choices of time in the forms: the end of a new key, and the end of a key that is replaced
//! (contract section 14).

use jiff::{Span, ToSpan as _};

use crate::clock::Moment;
use crate::model::validation::is_date;
use crate::store::registry::Expiry;

/// When a new key ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum EndChoice {
    #[default]
    Never,
    ThirtyDays,
    NinetyDays,
    Year,
    /// On the date of another field of the form.
    Date,
}

impl EndChoice {
    const ALL: [EndChoice; 5] = [
        EndChoice::Never,
        EndChoice::ThirtyDays,
        EndChoice::NinetyDays,
        EndChoice::Year,
        EndChoice::Date,
    ];

    /// The choice of a form; the default for a form without the field.
    pub(super) fn parse(value: &str) -> Option<EndChoice> {
        let choice = EndChoice::ALL.into_iter().find(|choice| choice.value() == value);
        choice.or_else(|| value.is_empty().then(EndChoice::default))
    }

    const fn value(self) -> &'static str {
        match self {
            EndChoice::Never => "never",
            EndChoice::ThirtyDays => "30d",
            EndChoice::NinetyDays => "90d",
            EndChoice::Year => "1y",
            EndChoice::Date => "date",
        }
    }

    const fn label(self) -> &'static str {
        match self {
            EndChoice::Never => "Never",
            EndChoice::ThirtyDays => "In 30 days",
            EndChoice::NinetyDays => "In 90 days",
            EndChoice::Year => "In a year",
            EndChoice::Date => "On a date",
        }
    }

    /// Value, label and whether it is selected, for each choice.
    pub(super) fn options(self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        EndChoice::ALL
            .into_iter()
            .map(move |choice| (choice.value(), choice.label(), choice == self))
    }

    /// The end of a key that is created at `now`; `None` for a key without an end. `date` is the
    /// other field of the form.
    ///
    /// # Errors
    ///
    /// The fault and the remedy, for the user.
    pub(super) fn expiry(self, date: &str, now: Moment) -> Result<Option<Expiry>, &'static str> {
        const TOO_FAR: &str = "This end is too far away.";
        if self != EndChoice::Date && !date.is_empty() {
            return Err("Select “On a date”, or leave the date empty.");
        }
        let after = |span: Span| Expiry::after(now, span).map(Some).ok_or(TOO_FAR);
        match self {
            EndChoice::Never => Ok(None),
            EndChoice::ThirtyDays => after(30.days()),
            EndChoice::NinetyDays => after(90.days()),
            EndChoice::Year => after(1.year()),
            EndChoice::Date if !is_date(date) => Err("Enter a date."),
            EndChoice::Date => match Expiry::at_end_of(date) {
                Some(end) if end.is_over(now) => Err("This date is in the past."),
                Some(end) => Ok(Some(end)),
                None => Err(TOO_FAR),
            },
        }
    }
}

/// How long a replaced key is still accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OverlapChoice {
    None,
    Hour,
    Day,
    Week,
}

impl OverlapChoice {
    const ALL: [OverlapChoice; 4] =
        [OverlapChoice::None, OverlapChoice::Hour, OverlapChoice::Day, OverlapChoice::Week];

    /// The choice of a form.
    pub(super) fn parse(value: &str) -> Option<OverlapChoice> {
        OverlapChoice::ALL.into_iter().find(|choice| choice.value() == value)
    }

    const fn value(self) -> &'static str {
        match self {
            OverlapChoice::None => "0",
            OverlapChoice::Hour => "1h",
            OverlapChoice::Day => "1d",
            OverlapChoice::Week => "7d",
        }
    }

    const fn label(self) -> &'static str {
        match self {
            OverlapChoice::None => "At once",
            OverlapChoice::Hour => "In an hour",
            OverlapChoice::Day => "In a day",
            OverlapChoice::Week => "In a week",
        }
    }

    /// Value, label and whether it is selected, for each choice. A day is selected.
    pub(super) fn options() -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        OverlapChoice::ALL
            .into_iter()
            .map(|choice| (choice.value(), choice.label(), choice == OverlapChoice::Day))
    }

    pub(super) fn span(self) -> Span {
        match self {
            OverlapChoice::None => Span::new(),
            OverlapChoice::Hour => 1.hour(),
            OverlapChoice::Day => 1.day(),
            OverlapChoice::Week => 7.days(),
        }
    }
}
