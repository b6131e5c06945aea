//! The table of error codes: OpenFlow 1.0 to 1.5 and the extensions of Nicira and the Open
//! Networking Foundation, one row each.

use super::{Code, Vendor};

/// A code that is valid from a version on, until the row has another. The version is the number in
/// message headers.
pub(super) struct Since {
    pub(super) version: u8,
    pub(super) code: Option<Code>,
}

const fn since(version: u8, vendor: Vendor, kind: u16, code: u16) -> Since {
    Since {
        version,
        code: Some(Code { vendor, kind, code }),
    }
}

const fn of(version: u8, kind: u16, code: u16) -> Since {
    since(version, Vendor::OpenFlow, kind, code)
}

const fn nx(version: u8, kind: u16, code: u16) -> Since {
    since(version, Vendor::Nicira, kind, code)
}

const fn onf(version: u8, kind: u16, code: u16) -> Since {
    since(version, Vendor::Onf, kind, code)
}

const fn none(version: u8) -> Since {
    Since { version, code: None }
}

macro_rules! errors {
    ($($variant:ident $name:literal [$($since:expr),*];)*) => {
        /// The errors of all versions. Versions that lack one have a code for it in an extension,
        /// or none.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum OfError {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl OfError {
            /// Every error, by type.
            pub const ALL: &'static [OfError] = &[$(OfError::$variant),*];

            /// The specification's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(OfError::$variant => $name,)*
                }
            }

            pub(super) const fn codes(self) -> &'static [Since] {
                match self {
                    $(OfError::$variant => const { &[$($since),*] },)*
                }
            }
        }
    };
}

// Name in code and in the specification; by version, vendor, type and code.
errors! {
    HfcEperm "OFPHFC_EPERM" [of(1, 0, 1)];
    HfcIncompatible "OFPHFC_INCOMPATIBLE" [of(1, 0, 0)];
    BrcBadLen "OFPBRC_BAD_LEN" [of(1, 1, 6)];
    BrcBadPacket "OFPBRC_BAD_PACKET" [of(3, 1, 12)];
    BrcBadPort "OFPBRC_BAD_PORT" [nx(1, 1, 514), of(3, 1, 11)];
    BrcBadStat "OFPBRC_BAD_STAT" [of(1, 1, 2)];
    BrcBadSubtype "OFPBRC_BAD_SUBTYPE" [of(1, 1, 4)];
    BrcBadTableId "OFPBRC_BAD_TABLE_ID" [nx(1, 1, 512), of(2, 1, 9)];
    BrcBadType "OFPBRC_BAD_TYPE" [of(1, 1, 1)];
    BrcBadVendor "OFPBRC_BAD_VENDOR" [of(1, 1, 3)];
    BrcBadVersion "OFPBRC_BAD_VERSION" [of(1, 1, 0)];
    BrcBufferEmpty "OFPBRC_BUFFER_EMPTY" [of(1, 1, 7)];
    BrcBufferUnknown "OFPBRC_BUFFER_UNKNOWN" [of(1, 1, 8)];
    BrcEperm "OFPBRC_EPERM" [of(1, 1, 5)];
    BrcIsSecondary "OFPBRC_IS_SECONDARY" [of(1, 1, 5), of(3, 1, 10)];
    BrcMultipartBadSched "OFPBRC_MULTIPART_BAD_SCHED" [of(6, 1, 16)];
    BrcMultipartBufferOverflow "OFPBRC_MULTIPART_BUFFER_OVERFLOW" [of(4, 1, 13)];
    BrcMultipartReplyTimeout "OFPBRC_MULTIPART_REPLY_TIMEOUT" [onf(4, 2641, 0), of(5, 1, 15)];
    BrcMultipartRequestTimeout "OFPBRC_MULTIPART_REQUEST_TIMEOUT" [onf(4, 2640, 0), of(5, 1, 14)];
    BrcPipelineFieldsOnly "OFPBRC_PIPELINE_FIELDS_ONLY" [of(6, 1, 17)];
    BrcUnknown "OFPBRC_UNKNOWN" [of(6, 1, 18)];
    BacBadArgument "OFPBAC_BAD_ARGUMENT" [of(1, 2, 5)];
    BacBadLen "OFPBAC_BAD_LEN" [of(1, 2, 1)];
    BacBadMeter "OFPBAC_BAD_METER" [of(6, 2, 17)];
    BacBadOutGroup "OFPBAC_BAD_OUT_GROUP" [nx(1, 2, 9), of(2, 2, 9)];
    BacBadOutPort "OFPBAC_BAD_OUT_PORT" [of(1, 2, 4)];
    BacBadQueue "OFPBAC_BAD_QUEUE" [of(1, 2, 8)];
    BacBadSetArgument "OFPBAC_BAD_SET_ARGUMENT" [nx(1, 1, 525), of(3, 2, 15)];
    BacBadSetLen "OFPBAC_BAD_SET_LEN" [nx(1, 1, 524), of(3, 2, 14)];
    BacBadSetMask "OFPBAC_BAD_SET_MASK" [onf(4, 4250, 0), of(6, 2, 16)];
    BacBadSetType "OFPBAC_BAD_SET_TYPE" [nx(1, 1, 523), of(3, 2, 13)];
    BacBadTag "OFPBAC_BAD_TAG" [of(2, 2, 12)];
    BacBadType "OFPBAC_BAD_TYPE" [of(1, 2, 0)];
    BacBadVendor "OFPBAC_BAD_VENDOR" [of(1, 2, 2)];
    BacBadVendorType "OFPBAC_BAD_VENDOR_TYPE" [of(1, 2, 3)];
    BacEperm "OFPBAC_EPERM" [of(1, 2, 6)];
    BacMatchInconsistent "OFPBAC_MATCH_INCONSISTENT" [nx(1, 1, 522), of(2, 2, 10)];
    BacTooMany "OFPBAC_TOO_MANY" [of(1, 2, 7)];
    BacUnsupportedOrder "OFPBAC_UNSUPPORTED_ORDER" [of(2, 2, 11)];
    BicBadExperimenter "OFPBIC_BAD_EXPERIMENTER" [of(2, 3, 5)];
    BicBadExpType "OFPBIC_BAD_EXP_TYPE" [of(2, 3, 5), of(3, 3, 6)];
    BicBadLen "OFPBIC_BAD_LEN" [of(3, 3, 7)];
    BicBadTableId "OFPBIC_BAD_TABLE_ID" [of(2, 3, 2)];
    BicDupInst "OFPBIC_DUP_INST" [nx(2, 3, 256), onf(3, 2600, 0), of(5, 3, 9)];
    BicEperm "OFPBIC_EPERM" [of(3, 3, 8)];
    BicUnknownInst "OFPBIC_UNKNOWN_INST" [of(2, 3, 0)];
    BicUnsupInst "OFPBIC_UNSUP_INST" [nx(1, 2, 257), of(2, 3, 1)];
    BicUnsupMetadata "OFPBIC_UNSUP_METADATA" [of(2, 3, 3)];
    BicUnsupMetadataMask "OFPBIC_UNSUP_METADATA_MASK" [of(2, 3, 4)];
    BmcBadDlAddrMask "OFPBMC_BAD_DL_ADDR_MASK" [of(2, 4, 3)];
    BmcBadField "OFPBMC_BAD_FIELD" [nx(1, 0, 263), of(2, 4, 6)];
    BmcBadLen "OFPBMC_BAD_LEN" [of(2, 4, 1)];
    BmcBadMask "OFPBMC_BAD_MASK" [nx(1, 1, 259), of(3, 4, 8)];
    BmcBadNwAddrMask "OFPBMC_BAD_NW_ADDR_MASK" [of(2, 4, 4)];
    BmcBadPrereq "OFPBMC_BAD_PREREQ" [nx(1, 1, 260), of(3, 4, 9)];
    BmcBadTag "OFPBMC_BAD_TAG" [of(2, 4, 2)];
    BmcBadType "OFPBMC_BAD_TYPE" [of(2, 4, 0)];
    BmcBadValue "OFPBMC_BAD_VALUE" [nx(1, 1, 258), of(2, 4, 7)];
    BmcBadWildcards "OFPBMC_BAD_WILDCARDS" [nx(1, 1, 262), of(2, 4, 5)];
    BmcDupField "OFPBMC_DUP_FIELD" [nx(1, 1, 261), of(3, 4, 10)];
    BmcEperm "OFPBMC_EPERM" [of(3, 4, 11)];
    FmfcBadCommand "OFPFMFC_BAD_COMMAND" [of(1, 3, 4), of(2, 5, 6)];
    FmfcBadEmergTimeout "OFPFMFC_BAD_EMERG_TIMEOUT" [of(1, 3, 3), none(2)];
    FmfcBadFlags "OFPFMFC_BAD_FLAGS" [nx(1, 3, 258), nx(2, 5, 258), of(3, 5, 7)];
    FmfcBadPriority "OFPFMFC_BAD_PRIORITY" [onf(4, 2360, 0), of(5, 5, 9)];
    FmfcBadTableId "OFPFMFC_BAD_TABLE_ID" [of(2, 5, 2)];
    FmfcBadTimeout "OFPFMFC_BAD_TIMEOUT" [of(2, 5, 5)];
    FmfcCantSync "OFPFMFC_CANT_SYNC" [of(5, 5, 8)];
    FmfcEperm "OFPFMFC_EPERM" [of(1, 3, 2), of(2, 5, 4)];
    FmfcIsSync "OFPFMFC_IS_SYNC" [of(5, 5, 10)];
    FmfcOverlap "OFPFMFC_OVERLAP" [of(1, 3, 1), of(2, 5, 3)];
    FmfcTableFull "OFPFMFC_TABLE_FULL" [of(1, 3, 0), of(2, 5, 1)];
    FmfcUnknown "OFPFMFC_UNKNOWN" [of(2, 5, 0)];
    FmfcUnsupported "OFPFMFC_UNSUPPORTED" [of(1, 3, 5), none(2)];
    GmfcBadBucket "OFPGMFC_BAD_BUCKET" [nx(1, 6, 12), none(2), of(3, 6, 12)];
    GmfcBadCommand "OFPGMFC_BAD_COMMAND" [nx(1, 6, 11), none(2), of(3, 6, 11)];
    GmfcBadType "OFPGMFC_BAD_TYPE" [nx(1, 6, 10), none(2), of(3, 6, 10)];
    GmfcBadWatch "OFPGMFC_BAD_WATCH" [nx(1, 6, 13), none(2), of(3, 6, 13)];
    GmfcBucketExists "OFPGMFC_BUCKET_EXISTS" [nx(1, 6, 16), none(2), of(6, 6, 16)];
    GmfcChainedGroup "OFPGMFC_CHAINED_GROUP" [nx(1, 6, 9), none(2), of(3, 6, 9)];
    GmfcChainingUnsupported "OFPGMFC_CHAINING_UNSUPPORTED" [nx(1, 6, 5), of(2, 6, 5)];
    GmfcEperm "OFPGMFC_EPERM" [nx(1, 6, 14), none(2), of(3, 6, 14)];
    GmfcGroupExists "OFPGMFC_GROUP_EXISTS" [nx(1, 6, 0), of(2, 6, 0)];
    GmfcInvalidGroup "OFPGMFC_INVALID_GROUP" [nx(1, 6, 1), of(2, 6, 1)];
    GmfcLoop "OFPGMFC_LOOP" [nx(1, 6, 7), of(2, 6, 7)];
    GmfcOutOfBuckets "OFPGMFC_OUT_OF_BUCKETS" [nx(1, 6, 4), of(2, 6, 4)];
    GmfcOutOfGroups "OFPGMFC_OUT_OF_GROUPS" [nx(1, 6, 3), of(2, 6, 3)];
    GmfcUnknownBucket "OFPGMFC_UNKNOWN_BUCKET" [nx(1, 6, 15), none(2), of(6, 6, 15)];
    GmfcUnknownGroup "OFPGMFC_UNKNOWN_GROUP" [nx(1, 6, 8), of(2, 6, 8)];
    GmfcWatchUnsupported "OFPGMFC_WATCH_UNSUPPORTED" [nx(1, 6, 6), of(2, 6, 6)];
    GmfcWeightUnsupported "OFPGMFC_WEIGHT_UNSUPPORTED" [nx(1, 6, 2), of(2, 6, 2)];
    PmfcBadAdvertise "OFPPMFC_BAD_ADVERTISE" [of(2, 7, 3)];
    PmfcBadConfig "OFPPMFC_BAD_CONFIG" [of(2, 7, 2)];
    PmfcBadHwAddr "OFPPMFC_BAD_HW_ADDR" [of(1, 4, 1), of(2, 7, 1)];
    PmfcBadPort "OFPPMFC_BAD_PORT" [of(1, 4, 0), of(2, 7, 0)];
    PmfcEperm "OFPPMFC_EPERM" [of(3, 7, 4)];
    TmfcBadConfig "OFPTMFC_BAD_CONFIG" [of(2, 8, 1)];
    TmfcBadTable "OFPTMFC_BAD_TABLE" [of(2, 8, 0)];
    TmfcEperm "OFPTMFC_EPERM" [of(3, 8, 2)];
    QofcBadPort "OFPQOFC_BAD_PORT" [of(1, 5, 0), of(2, 9, 0)];
    QofcBadQueue "OFPQOFC_BAD_QUEUE" [of(1, 5, 1), of(2, 9, 1)];
    QofcEperm "OFPQOFC_EPERM" [of(1, 5, 2), of(2, 9, 2)];
    ScfcBadFlags "OFPSCFC_BAD_FLAGS" [of(2, 10, 0)];
    ScfcBadLen "OFPSCFC_BAD_LEN" [of(2, 10, 1)];
    ScfcEperm "OFPSCFC_EPERM" [of(3, 10, 2)];
    RrfcBadRole "OFPRRFC_BAD_ROLE" [nx(1, 1, 513), of(3, 11, 2)];
    RrfcIdInUse "OFPRRFC_ID_IN_USE" [of(6, 11, 4)];
    RrfcIdUnsup "OFPRRFC_ID_UNSUP" [of(6, 11, 3)];
    RrfcStale "OFPRRFC_STALE" [of(3, 11, 0)];
    RrfcUnsup "OFPRRFC_UNSUP" [of(3, 11, 1)];
    MmfcBadBand "OFPMMFC_BAD_BAND" [of(4, 12, 8)];
    MmfcBadBandValue "OFPMMFC_BAD_BAND_VALUE" [of(4, 12, 9)];
    MmfcBadBurst "OFPMMFC_BAD_BURST" [of(4, 12, 7)];
    MmfcBadCommand "OFPMMFC_BAD_COMMAND" [of(4, 12, 4)];
    MmfcBadFlags "OFPMMFC_BAD_FLAGS" [of(4, 12, 5)];
    MmfcBadRate "OFPMMFC_BAD_RATE" [of(4, 12, 6)];
    MmfcInvalidMeter "OFPMMFC_INVALID_METER" [of(4, 12, 2)];
    MmfcMeterExists "OFPMMFC_METER_EXISTS" [of(4, 12, 1)];
    MmfcOutOfBands "OFPMMFC_OUT_OF_BANDS" [of(4, 12, 11)];
    MmfcOutOfMeters "OFPMMFC_OUT_OF_METERS" [of(4, 12, 10)];
    MmfcUnknown "OFPMMFC_UNKNOWN" [of(4, 12, 0)];
    MmfcUnknownMeter "OFPMMFC_UNKNOWN_METER" [of(4, 12, 3)];
    TffcBadCapa "OFPTFFC_BAD_CAPA" [of(6, 13, 6)];
    TffcBadCommand "OFPTFFC_BAD_COMMAND" [of(6, 13, 9)];
    TffcBadFeatures "OFPTFFC_BAD_FEATURES" [of(6, 13, 8)];
    TffcBadMaxEnt "OFPTFFC_BAD_MAX_ENT" [of(6, 13, 7)];
    TffcBadMetadata "OFPTFFC_BAD_METADATA" [of(4, 13, 1)];
    TffcBadTable "OFPTFFC_BAD_TABLE" [of(4, 13, 0)];
    TffcEperm "OFPTFFC_EPERM" [of(4, 13, 5)];
    TffcTooMany "OFPTFFC_TOO_MANY" [of(6, 13, 10)];
    BpcBadExperimenter "OFPBPC_BAD_EXPERIMENTER" [nx(1, 14, 5), nx(3, 30, 0), onf(4, 4445, 0), of(5, 14, 5)];
    BpcBadExpType "OFPBPC_BAD_EXP_TYPE" [nx(1, 14, 6), nx(3, 31, 0), onf(4, 4446, 0), of(5, 14, 6)];
    BpcBadExpValue "OFPBPC_BAD_EXP_VALUE" [nx(1, 14, 7), nx(3, 32, 0), onf(4, 4447, 0), of(5, 14, 7)];
    BpcBadLen "OFPBPC_BAD_LEN" [nx(1, 13, 3), nx(3, 26, 0), of(4, 13, 3), of(5, 14, 1)];
    BpcBadType "OFPBPC_BAD_TYPE" [nx(1, 13, 2), nx(3, 25, 0), of(4, 13, 2), of(5, 14, 0)];
    BpcBadValue "OFPBPC_BAD_VALUE" [nx(1, 13, 4), nx(3, 27, 0), of(4, 13, 4), of(5, 14, 2)];
    BpcDupType "OFPBPC_DUP_TYPE" [nx(1, 14, 4), nx(3, 29, 0), onf(4, 4444, 0), of(5, 14, 4)];
    BpcEperm "OFPBPC_EPERM" [nx(1, 14, 8), nx(3, 33, 0), onf(4, 4448, 0), of(5, 14, 8)];
    BpcTooMany "OFPBPC_TOO_MANY" [nx(1, 14, 3), nx(3, 28, 0), onf(4, 4443, 0), of(5, 14, 3)];
    AcfcEperm "OFPACFC_EPERM" [onf(4, 2372, 0), of(5, 15, 2)];
    AcfcInvalid "OFPACFC_INVALID" [onf(4, 2370, 0), of(5, 15, 0)];
    AcfcUnsupported "OFPACFC_UNSUPPORTED" [onf(4, 2371, 0), of(5, 15, 1)];
    MofcBadCommand "OFPMOFC_BAD_COMMAND" [of(5, 16, 4)];
    MofcBadFlags "OFPMOFC_BAD_FLAGS" [nx(1, 1, 518), nx(3, 7, 0), of(5, 16, 5)];
    MofcBadOut "OFPMOFC_BAD_OUT" [of(5, 16, 7)];
    MofcBadTableId "OFPMOFC_BAD_TABLE_ID" [of(5, 16, 6)];
    MofcInvalidMonitor "OFPMOFC_INVALID_MONITOR" [of(5, 16, 2)];
    MofcMonitorExists "OFPMOFC_MONITOR_EXISTS" [nx(1, 1, 517), nx(3, 6, 0), of(5, 16, 1)];
    MofcUnknown "OFPMOFC_UNKNOWN" [of(5, 16, 0)];
    MofcUnknownMonitor "OFPMOFC_UNKNOWN_MONITOR" [nx(1, 1, 519), nx(3, 8, 0), of(5, 16, 3)];
    BfcBadFlags "OFPBFC_BAD_FLAGS" [onf(4, 2307, 0), of(5, 17, 7)];
    BfcBadId "OFPBFC_BAD_ID" [onf(4, 2302, 0), of(5, 17, 2)];
    BfcBadType "OFPBFC_BAD_TYPE" [onf(4, 2306, 0), of(5, 17, 6)];
    BfcBadVersion "OFPBFC_BAD_VERSION" [nx(5, 22, 0)];
    BfcBundleClosed "OFPBFC_BUNDLE_CLOSED" [onf(4, 2304, 0), of(5, 17, 4)];
    BfcBundleExist "OFPBFC_BUNDLE_EXIST" [onf(4, 2303, 0), of(5, 17, 3)];
    BfcBundleInProgress "OFPBFC_BUNDLE_IN_PROGRESS" [onf(4, 2315, 0), of(5, 17, 15)];
    BfcEperm "OFPBFC_EPERM" [onf(4, 2301, 0), of(5, 17, 1)];
    BfcMsgBadLen "OFPBFC_MSG_BAD_LEN" [onf(4, 2308, 0), of(5, 17, 8)];
    BfcMsgBadXid "OFPBFC_MSG_BAD_XID" [onf(4, 2309, 0), of(5, 17, 9)];
    BfcMsgConflict "OFPBFC_MSG_CONFLICT" [onf(4, 2311, 0), of(5, 17, 11)];
    BfcMsgFailed "OFPBFC_MSG_FAILED" [onf(4, 2313, 0), of(5, 17, 13)];
    BfcMsgTooMany "OFPBFC_MSG_TOO_MANY" [onf(4, 2312, 0), of(5, 17, 12)];
    BfcMsgUnsup "OFPBFC_MSG_UNSUP" [onf(4, 2310, 0), of(5, 17, 10)];
    BfcOutOfBundles "OFPBFC_OUT_OF_BUNDLES" [onf(4, 2305, 0), of(5, 17, 5)];
    BfcSchedFuture "OFPBFC_SCHED_FUTURE" [of(6, 17, 17)];
    BfcSchedNotSupported "OFPBFC_SCHED_NOT_SUPPORTED" [of(6, 17, 16)];
    BfcSchedPast "OFPBFC_SCHED_PAST" [of(6, 17, 18)];
    BfcTimeout "OFPBFC_TIMEOUT" [onf(4, 2314, 0), of(5, 17, 14)];
    BfcUnknown "OFPBFC_UNKNOWN" [onf(4, 2300, 0), of(5, 17, 0)];
    NxBacBadConjunction "NXBAC_BAD_CONJUNCTION" [nx(1, 2, 526), nx(3, 15, 0)];
    NxBacBadEdProp "NXBAC_BAD_ED_PROP" [nx(4, 41, 0)];
    NxBacBadHeaderType "NXBAC_BAD_HEADER_TYPE" [nx(4, 39, 0)];
    NxBacCtDatapathSupport "NXBAC_CT_DATAPATH_SUPPORT" [nx(1, 1, 265), nx(3, 42, 0)];
    NxBacMustBeZero "NXBAC_MUST_BE_ZERO" [nx(1, 2, 256), nx(3, 11, 0)];
    NxBacUnknownEdProp "NXBAC_UNKNOWN_ED_PROP" [nx(4, 40, 0)];
    NxBmcCtDatapathSupport "NXBMC_CT_DATAPATH_SUPPORT" [nx(1, 1, 264), nx(3, 43, 0)];
    NxBrcBadReason "NXBRC_BAD_REASON" [nx(1, 1, 516), nx(3, 5, 0)];
    NxBrcFmBadEvent "NXBRC_FM_BAD_EVENT" [nx(1, 1, 520), nx(3, 9, 0)];
    NxBrcMustBeZero "NXBRC_MUST_BE_ZERO" [nx(1, 1, 515), nx(3, 4, 0)];
    NxBrcNxmBadType "NXBRC_NXM_BAD_TYPE" [nx(1, 1, 257), nx(3, 3, 0)];
    NxBrcNxmInvalid "NXBRC_NXM_INVALID" [nx(1, 1, 256), nx(3, 2, 0)];
    NxBrcUnencodableError "NXBRC_UNENCODABLE_ERROR" [nx(1, 1, 521), nx(3, 10, 0)];
    NxFmfcBadTableId "NXFMFC_BAD_TABLE_ID" [nx(1, 5, 257), nx(3, 13, 0)];
    NxFmfcHardware "NXFMFC_HARDWARE" [nx(1, 5, 256), nx(3, 12, 0)];
    NxFmfcInvalidTlvField "NXFMFC_INVALID_TLV_FIELD" [nx(1, 1, 536), nx(3, 37, 0)];
    NxQofcQueueError "NXQOFC_QUEUE_ERROR" [nx(5, 23, 0)];
    NxRNotSupported "NXR_NOT_SUPPORTED" [nx(1, 1, 533), nx(3, 34, 0)];
    NxRStale "NXR_STALE" [nx(1, 1, 534), nx(3, 35, 0)];
    NxStNotConfigured "NXST_NOT_CONFIGURED" [nx(1, 1, 535), nx(3, 36, 0)];
    NxTffcDupTable "NXTFFC_DUP_TABLE" [nx(4, 44, 0)];
    NxTtmfcAlreadyMapped "NXTTMFC_ALREADY_MAPPED" [nx(1, 1, 531), nx(3, 20, 0)];
    NxTtmfcBadCommand "NXTTMFC_BAD_COMMAND" [nx(1, 1, 527), nx(3, 16, 0)];
    NxTtmfcBadFieldIdx "NXTTMFC_BAD_FIELD_IDX" [nx(1, 1, 529), nx(3, 18, 0)];
    NxTtmfcBadOptLen "NXTTMFC_BAD_OPT_LEN" [nx(1, 1, 528), nx(3, 17, 0)];
    NxTtmfcDupEntry "NXTTMFC_DUP_ENTRY" [nx(1, 1, 532), nx(3, 21, 0)];
    NxTtmfcInvalidTlvDel "NXTTMFC_INVALID_TLV_DEL" [nx(1, 1, 537), nx(3, 38, 0)];
    NxTtmfcTableFull "NXTTMFC_TABLE_FULL" [nx(1, 1, 530), nx(3, 19, 0)];
}
