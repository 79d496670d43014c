//! Plots as SVG.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::{
    managers::Manager,
    statistics::{Group, Summary},
};

type Variants<'a> = [(&'a str, Vec<(&'a str, Group)>)];

const SIZE: (u32, u32) = (900, 420);

fn color(manager: &str) -> RGBColor {
    match manager {
        name if name == Manager::Ours.name() => RGBColor(183, 65, 14),
        name if name == Manager::GoBest.name() => RGBColor(0, 125, 156),
        name if name == Manager::GoDefaults.name() => RGBColor(120, 190, 210),
        _ => RGBColor(150, 150, 150),
    }
}

fn median(group: &Group, name: &str) -> Option<f64> {
    Some(Summary::of(group.get(name)?)?.median)
}

/// Number of Nodes and median of this value of one manager, for Nodes of real size and a cloud that answers at once.
pub(super) fn points(variants: &Variants<'_>, manager: &str, name: &str) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = variants
        .iter()
        .filter(|(variant, _)| !variant.contains(','))
        .filter_map(|(_, managers)| {
            let group = &managers.iter().find(|(of, _)| *of == manager)?.1;
            Some((median(group, "nodes")?, median(group, name)?))
        })
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// A bar for each manager in each variant, on a logarithmic scale.
pub(super) fn times(variants: &Variants<'_>, path: &Path) -> Result<()> {
    let bars: Vec<(String, &str, f64)> = variants
        .iter()
        .flat_map(|(variant, managers)| {
            managers.iter().filter_map(move |(manager, group)| {
                Some((format!("{variant}: {manager}"), *manager, median(group, "seconds")?))
            })
        })
        .collect();
    let highest = bars.iter().map(|(_, _, seconds)| *seconds).fold(1.0, f64::max) * 2.0;
    let height = 60 + 26 * u32::try_from(bars.len())?;
    draw(path, (SIZE.0, height), |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(330)
            .build_cartesian_2d((0.05..highest).log_scale(), (0..bars.len()).into_segmented())?;
        let name = |position: &SegmentValue<usize>| match position {
            SegmentValue::CenterOf(index) => bars
                .len()
                .checked_sub(index + 1)
                .and_then(|index| Some(bars.get(index)?.0.clone()))
                .unwrap_or_default(),
            _ => String::new(),
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(TRANSPARENT)
            .y_labels(bars.len())
            .y_label_formatter(&name)
            .x_desc("seconds, logarithmic; less is better")
            .x_label_formatter(&|seconds| format!("{seconds}"))
            .draw()?;
        chart.draw_series(bars.iter().rev().enumerate().map(|(index, (_, manager, seconds))| {
            let (from, to) = (SegmentValue::Exact(index), SegmentValue::Exact(index + 1));
            let mut bar = Rectangle::new([(0.05, from), (*seconds, to)], color(manager).filled());
            bar.set_margin(4, 4, 0, 0);
            bar
        }))?;
        Ok(())
    })
}

/// Time and peak memory by the number of Nodes, side by side.
pub(super) fn scaling(variants: &Variants<'_>, path: &Path) -> Result<()> {
    let managers = [Manager::Ours, Manager::GoBest];
    draw(path, SIZE, |area| {
        let halves = area.split_evenly((1, 2));
        let panels = [("seconds", "seconds", 1.0), ("peak_bytes", "peak memory in MiB", 1024.0 * 1024.0)];
        for (half, (name, title, unit)) in halves.iter().zip(panels) {
            let lines = managers.map(|manager| (manager.name(), points(variants, manager.name(), name)));
            let all = || lines.iter().flat_map(|(_, points)| points);
            let most = all().map(|point| point.0).fold(1.0, f64::max);
            let highest = all().map(|point| point.1 / unit).fold(1.0, f64::max) * 1.1;
            let mut chart = ChartBuilder::on(half)
                .margin(10)
                .x_label_area_size(40)
                .y_label_area_size(60)
                .build_cartesian_2d(0.0..most, 0.0..highest)?;
            chart
                .configure_mesh()
                .light_line_style(TRANSPARENT)
                .x_desc("Nodes")
                .y_desc(title)
                .x_label_formatter(&|x| format!("{x:.0}"))
                .draw()?;
            for (manager, points) in lines {
                let points: Vec<_> = points.into_iter().map(|(x, y)| (x, y / unit)).collect();
                let style = color(manager).stroke_width(2);
                chart
                    .draw_series(LineSeries::new(points.iter().copied(), style))?
                    .label(manager)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
                chart.draw_series(
                    points.into_iter().map(|point| Circle::new(point, 4, color(manager).filled())),
                )?;
            }
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .border_style(BLACK)
                .background_style(WHITE)
                .draw()?;
        }
        Ok(())
    })
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

fn draw(path: &Path, size: (u32, u32), picture: impl FnOnce(&Area<'_>) -> Drawn) -> Result<()> {
    let area = SVGBackend::new(path, size).into_drawing_area();
    let drawn = area.fill(&WHITE).map_err(Into::into).and_then(|()| picture(&area));
    drawn.map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))?;
    area.present().map_err(|error| anyhow!("cannot write {}: {error}", path.display()))
}
