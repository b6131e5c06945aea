use super::*;
use crate::tables::meter::MeterNumbers;
use openflow::model::{ALL_METERS, BandKind, MeterBand, MeterCommand, MeterConfig, MeterMod, meter_flags};

fn meter(command: MeterCommand, id: u32, flags: u16, bands: Vec<MeterBand>) -> MeterMod {
    let config = MeterConfig {
        meter: id,
        flags,
        bands,
    };
    MeterMod { command, config }
}

fn drops(rate: u32) -> MeterBand {
    MeterBand {
        rate,
        burst: 3,
        kind: BandKind::Drop,
    }
}

#[test]
fn meters_come_change_and_go_and_the_datapath_is_told() {
    let (mut tables, mut numbers) = (tables(), MeterNumbers::of_rules());
    let mut log = tables.log();
    let mut ask = |tables: &mut FlowTables, change: &MeterMod| tables.meter_mod(change, &mut numbers, T1, &mut log);
    let told = ask(
        &mut tables,
        &meter(MeterCommand::Add, 1, meter_flags::KBPS, vec![drops(10)]),
    )
    .unwrap();
    let [MeterChange::Set { number, config }] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((config.unit, config.bands[0].burst), (dp::MeterUnit::Kbps, 0));
    let flags = meter_flags::PKTPS | meter_flags::BURST;
    let told = ask(&mut tables, &meter(MeterCommand::Modify, 1, flags, vec![drops(10)])).unwrap();
    assert!(
        matches!(&told[..], [MeterChange::Set { number: same, config }] if same == number && config.bands[0].burst == 3)
    );
    let other = ask(
        &mut tables,
        &meter(MeterCommand::Add, 0xffff_fffe, flags, vec![drops(1)]),
    )
    .unwrap();
    assert!(matches!(&other[..], [MeterChange::Set { number: another, .. }] if another != number));
    assert!(tables.meters().controller().is_some() && tables.meters().slowpath().is_none());

    let mut rule = add(1, &[in_port(1)], 1);
    rule.instructions.meter = Some(2);
    assert_eq!(tables.flow_mod(&rule, T1).unwrap_err(), OfError::MmfcInvalidMeter);
    rule.instructions.meter = Some(1);
    tables.flow_mod(&rule, T1).unwrap();
    assert_eq!(tables.metered(1), 1);
    let measured = dp::MeterStats {
        packets: 4,
        ..dp::MeterStats::default()
    };
    let stats = crate::tables::meter_stats(tables.meter(1).unwrap(), 1, &measured, Nanos::from_secs(4));
    assert_eq!((stats.packets, stats.duration.sec, stats.bands), (4, 3, vec![(0, 0)]));

    let told = ask(&mut tables, &meter(MeterCommand::Delete, ALL_METERS, 0, vec![])).unwrap();
    assert_eq!(told.len(), 2);
    assert!(tables.is_empty() && tables.meter(1).is_none());
    assert!(
        ask(&mut tables, &meter(MeterCommand::Delete, 1, 0, vec![]))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn each_bad_meter_has_its_error() {
    let (mut tables, mut numbers) = (tables(), MeterNumbers::of_rules());
    let mut log = tables.log();
    let remark = |levels: u8| MeterBand {
        kind: BandKind::DscpRemark(levels),
        ..drops(1)
    };
    let add = |id: u32, flags: u16, bands: Vec<MeterBand>| meter(MeterCommand::Add, id, flags, bands);
    tables
        .meter_mod(&add(1, 1, vec![remark(1)]), &mut numbers, T1, &mut log)
        .unwrap();
    let cases = [
        (add(1, 1, vec![drops(1)]), OfError::MmfcMeterExists),
        (
            meter(MeterCommand::Modify, 2, 1, vec![drops(1)]),
            OfError::MmfcUnknownMeter,
        ),
        (add(0, 1, vec![drops(1)]), OfError::MmfcInvalidMeter),
        (add(0xffff_0001, 1, vec![drops(1)]), OfError::MmfcInvalidMeter),
        (add(ALL_METERS, 1, vec![drops(1)]), OfError::MmfcInvalidMeter),
        (add(2, 3, vec![drops(1)]), OfError::MmfcBadFlags),
        (add(2, 16, vec![drops(1)]), OfError::MmfcBadFlags),
        (add(2, 1, vec![drops(0)]), OfError::MmfcBadRate),
        (add(2, 1, vec![]), OfError::MmfcBadBand),
        (add(2, 1, vec![drops(1); 9]), OfError::MmfcOutOfBands),
        (add(2, 1, vec![remark(0)]), OfError::MmfcBadBandValue),
    ];
    for (wrong, error) in cases {
        let result = tables.meter_mod(&wrong, &mut numbers, T1, &mut log);
        assert_eq!(result, Err(error), "{wrong:?}");
    }
    assert_eq!(tables.meters().wanted(ALL_METERS).count(), 1);
}
