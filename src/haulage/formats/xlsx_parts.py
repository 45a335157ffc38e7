"""The parts of a workbook that are the same in every file: one sheet, a few looks of a cell, and no date of making."""

from __future__ import annotations

from collections.abc import Mapping

SHEET = "xl/worksheets/sheet1.xml"
SHEET_NAME = "Export"  # fixed, since not every name of a dataset is one of a sheet

# Places in cellXfs below.
GENERAL, HEADER, DAY, MOMENT, MOMENT_FINE, MOMENT_UTC, MOMENT_UTC_FINE, CLOCK, CLOCK_FINE = range(9)

_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml"

_FORMATS = {
    164: "yyyy\\-mm\\-dd",
    165: "yyyy\\-mm\\-dd\\ hh:mm:ss",
    166: "yyyy\\-mm\\-dd\\ hh:mm:ss.000",
    167: "yyyy\\-mm\\-dd\\ hh:mm:ss\\ &quot;UTC&quot;",
    168: "yyyy\\-mm\\-dd\\ hh:mm:ss.000\\ &quot;UTC&quot;",
    169: "hh:mm:ss",
    170: "hh:mm:ss.000",
}
_LOOKS = ("", 'fontId="1" applyFont="1"', *(f'numFmtId="{number}" applyNumberFormat="1"' for number in _FORMATS))


def _look(attributes: str) -> str:
    given = {"numFmtId": "0", "fontId": "0", "fillId": "0", "borderId": "0", "xfId": "0"}
    rest = [f'{name}="{value}"' for name, value in given.items() if f"{name}=" not in attributes]
    return f"<xf {' '.join([*rest, attributes]).strip()}/>"


_STYLES = (
    f'{_XML}<styleSheet xmlns="{MAIN}">'
    f'<numFmts count="{len(_FORMATS)}">'
    + "".join(f'<numFmt numFmtId="{number}" formatCode="{code}"/>' for number, code in _FORMATS.items())
    + '</numFmts><fonts count="2"><font><sz val="11"/><name val="Calibri"/><family val="2"/></font>'
    '<font><b/><sz val="11"/><name val="Calibri"/><family val="2"/></font></fonts>'
    '<fills count="2"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill>'
    '</fills><borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
    '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>'
    f'<cellXfs count="{len(_LOOKS)}">{"".join(map(_look, _LOOKS))}</cellXfs>'
    '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>'
)

# In the order of the archive; the sheet stands after them.
PARTS: Mapping[str, str] = {
    "[Content_Types].xml": f'{_XML}<Types xmlns="{_PACKAGE}/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Default Extension="xml" ContentType="application/xml"/>'
    f'<Override PartName="/xl/workbook.xml" ContentType="{_KIND}.sheet.main+xml"/>'
    f'<Override PartName="/xl/styles.xml" ContentType="{_KIND}.styles+xml"/>'
    f'<Override PartName="/{SHEET}" ContentType="{_KIND}.worksheet+xml"/></Types>',
    "_rels/.rels": f'{_XML}<Relationships xmlns="{_PACKAGE}/relationships">'
    f'<Relationship Id="rId1" Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": f'{_XML}<workbook xmlns="{MAIN}" xmlns:r="{_OFFICE}">'
    "<bookViews><workbookView/></bookViews><sheets>"
    f'<sheet name="{SHEET_NAME}" sheetId="1" r:id="rId1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": f'{_XML}<Relationships xmlns="{_PACKAGE}/relationships">'
    f'<Relationship Id="rId1" Type="{_OFFICE}/worksheet" Target="worksheets/sheet1.xml"/>'
    f'<Relationship Id="rId2" Type="{_OFFICE}/styles" Target="styles.xml"/></Relationships>',
    "xl/styles.xml": _STYLES,
}

# One row of headers, which stays in sight.
SHEET_START = (
    f'{_XML}<worksheet xmlns="{MAIN}"><sheetViews><sheetView workbookViewId="0">'
    '<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/>'
    '<selection pane="bottomLeft" activeCell="A2" sqref="A2"/></sheetView></sheetViews>'
    "<cols>{columns}</cols><sheetData>"
)
SHEET_END = "</sheetData></worksheet>"
