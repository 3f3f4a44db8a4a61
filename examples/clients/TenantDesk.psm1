# A client for TenantDesk in one file, for Windows PowerShell 5.1 and PowerShell 7. It needs nothing
# else. Copy it.
#
#     Import-Module ./TenantDesk.psm1
#
#     $desk = Connect-Desk https://desk.example tdk_...
#     $shop = New-DeskRecord $desk customers @{ name = 'Shop'; city = 'Berlin' }
#     Set-DeskRecord $desk customers $shop.id @{ status = 'inactive' }
#     New-DeskRecord $desk hardware @{ serial_number = 'PF-3X9Q7'; name = 'Laptop' } -UpdateBy serial_number
#     Get-DeskRecord $desk customers -Query @{ status = 'inactive'; sort = '-created_at' } | ForEach-Object name
#     Set-DeskRecord $desk customers $shop.id @{ city = 'Bremen' } -IfMatch $shop.ETag
#     Edit-DeskRecord $desk customers $shop.id { param($record) @{ notes = "$($record.notes)Called." } }
#     try { Get-DeskRecord $desk customers 99 } catch { $_.TargetObject.Code }
#
# PowerShell 7 turns texts that look like a timestamp into [datetime]; 5.1 leaves them as they are.
# A [datetime] is sent as a moment. Write the date of a field as a text: '2027-01-31'.
# This file is ASCII, because 5.1 reads a file without a byte order mark in the code page of
# Windows.

# An answer may lack a member that this file reads. The member is then $null.
Set-StrictMode -Off

Add-Type -AssemblyName System.Net.Http

# 5.1 may not use TLS 1.2 by itself. 0 means that the system chooses.
$isWindowsPowerShell = $PSVersionTable.PSVersion.Major -lt 6
if ($isWindowsPowerShell -and [int][Net.ServicePointManager]::SecurityProtocol -ne 0) {
    [Net.ServicePointManager]::SecurityProtocol =
        [Net.ServicePointManager]::SecurityProtocol -bor [Net.SecurityProtocolType]::Tls12
}

<#
.SYNOPSIS
One tenant's records.
.DESCRIPTION
A request without an answer, or with 429, 502, 503 or 504, is repeated for PatienceSeconds in all,
with doubled pauses. A change takes effect once: each has an idempotency key. Pass your own, a UUID, as
IdempotencyKey if your script may be killed and repeats the same change within 24 hours.
#>
function Connect-Desk {
    param(
        [Parameter(Mandatory)] [ValidatePattern('^https?://')] [string] $Url,
        [Parameter(Mandatory)] [string] $Key,
        [int] $PatienceSeconds = 120,
        [int] $TimeoutSeconds = 70
    )
    $handler = [System.Net.Http.HttpClientHandler]::new()
    $handler.AllowAutoRedirect = $false
    $client = [System.Net.Http.HttpClient]::new($handler)
    $client.Timeout = [timespan]::FromSeconds($TimeoutSeconds)
    $client.DefaultRequestHeaders.ExpectContinue = $false
    [void] $client.DefaultRequestHeaders.TryAddWithoutValidation('Authorization', "Bearer $Key")
    [pscustomobject] @{ Url = $Url.TrimEnd('/'); Patience = $PatienceSeconds; Client = $client }
}

<#
.SYNOPSIS
The record with this Id, or every record that matches Query, page by page.
.DESCRIPTION
The version of a record is in its property etag.
#>
function Get-DeskRecord {
    param(
        [Parameter(Mandatory)] $Desk,
        [Parameter(Mandatory)] [ValidateSet('customers', 'employees', 'hardware')]
        [string] $Resource,
        [long] $Id,
        [System.Collections.IDictionary] $Query = @{}
    )
    # ConvertFrom-Json of 5.1 takes 2 MiB at most.
    $parameters = @{ limit = 100 }
    # An Id that is empty by mistake is an error, and no list.
    if ($PSBoundParameters.ContainsKey('Id')) { $parameters = @{ id = $Id } }
    foreach ($name in $Query.Keys) { $parameters[$name] = $Query[$name] }
    if ($parameters.ContainsKey('id')) {
        return Invoke-Desk $Desk GET "/$Resource.php" -Query $parameters
    }
    do {
        $page = Invoke-Desk $Desk GET "/$Resource.php" -Query $parameters
        $page.data
        $parameters['cursor'] = $page.next_cursor
    } while ($null -ne $page.next_cursor)
}

<#
.SYNOPSIS
Creates a record with these Fields, and returns it. UpdateBy names a field. If a record has the same
value in that field, the request changes that record instead. With IfAbsent, it leaves that record as
it is, and returns an object with the record's id alone.
#>
function New-DeskRecord {
    param(
        [Parameter(Mandatory)] $Desk,
        [Parameter(Mandatory)] [ValidateSet('customers', 'employees', 'hardware')]
        [string] $Resource,
        [Parameter(Mandatory)] [System.Collections.IDictionary] $Fields,
        [string] $UpdateBy,
        [switch] $IfAbsent,
        [string] $IdempotencyKey
    )
    $query = @{}
    # A name that is empty by mistake is an error, and no second record.
    if ($PSBoundParameters.ContainsKey('UpdateBy')) { $query['update_by'] = $UpdateBy }
    $options = @{ Query = $query; Body = $Fields; IdempotencyKey = $IdempotencyKey }
    if ($IfAbsent) { $options['IfNoneMatch'] = '*' }
    try {
        Invoke-Desk $Desk POST "/$Resource.php" @options
    } catch {
        if ($null -eq $_.TargetObject.Id) { throw }
        [pscustomobject] @{ id = $_.TargetObject.Id }
    }
}

<#
.SYNOPSIS
Changes these Fields of a record, and returns the record. IfMatch is the ETag of a record. If the
record was changed since, the error is 412 precondition_failed.
#>
function Set-DeskRecord {
    param(
        [Parameter(Mandatory)] $Desk,
        [Parameter(Mandatory)] [ValidateSet('customers', 'employees', 'hardware')]
        [string] $Resource,
        [Parameter(Mandatory)] [long] $Id,
        [Parameter(Mandatory)] [System.Collections.IDictionary] $Fields,
        [string] $IfMatch,
        [string] $IdempotencyKey
    )
    $options = @{ Body = $Fields; IdempotencyKey = $IdempotencyKey }
    if ($PSBoundParameters.ContainsKey('IfMatch')) { $options['IfMatch'] = $IfMatch }
    Invoke-Desk $Desk PUT "/$Resource.php" -Query @{ id = $Id } @options
}

<#
.SYNOPSIS
Deletes a record.
#>
function Remove-DeskRecord {
    param(
        [Parameter(Mandatory)] $Desk,
        [Parameter(Mandatory)] [ValidateSet('customers', 'employees', 'hardware')]
        [string] $Resource,
        [Parameter(Mandatory)] [long] $Id,
        [string] $IfMatch,
        [string] $IdempotencyKey
    )
    $options = @{ IdempotencyKey = $IdempotencyKey }
    if ($PSBoundParameters.ContainsKey('IfMatch')) { $options['IfMatch'] = $IfMatch }
    Invoke-Desk $Desk DELETE "/$Resource.php" -Query @{ id = $Id } @options
}

<#
.SYNOPSIS
Updates the Fields that the script block Edit returns for the record. If the record was changed
meanwhile, reads it and edits again.
#>
function Edit-DeskRecord {
    param(
        [Parameter(Mandatory)] $Desk,
        [Parameter(Mandatory)] [ValidateSet('customers', 'employees', 'hardware')]
        [string] $Resource,
        [Parameter(Mandatory)] [long] $Id,
        [Parameter(Mandatory)] [scriptblock] $Edit
    )
    for ($pause = 16; ; $pause = [math]::Min(2 * $pause, 1000)) {
        $record = Get-DeskRecord $Desk $Resource -Id $Id
        $fields = & $Edit $record
        try {
            return Set-DeskRecord $Desk $Resource $Id $fields -IfMatch $record.etag
        } catch {
            if ($_.TargetObject.Status -ne 412) { throw }
        }
        # Random, so that many writers do not meet again.
        Start-Sleep -Milliseconds (Get-Random -Maximum $pause)
    }
}

<#
.SYNOPSIS
Any request: `Invoke-Desk $desk POST /batch.php -Body @{ operations = @(...) }`.
.DESCRIPTION
An answer that is no success is thrown. So is a missing answer, with Status 0. The TargetObject of the error has Status, Code, Message and
RequestId. With validation_failed, Fields has the error of each field. If operations of a batch
failed, Operation is the number of the first one, and Operations has all that are known.
#>
function Invoke-Desk {
    param(
        [Parameter(Mandatory)] $Desk,
        [Parameter(Mandatory)] [string] $Method,
        [Parameter(Mandatory)] [string] $Path,
        [System.Collections.IDictionary] $Query = @{},
        $Body,
        # An ETag that is empty by mistake is an error. It would overwrite any version.
        [ValidateNotNullOrEmpty()] [string] $IfMatch,
        [string] $IdempotencyKey,
        [string] $IfNoneMatch
    )
    # The same for every try, so that the change takes effect once.
    if (-not $IdempotencyKey) { $IdempotencyKey = [guid]::NewGuid().ToString() }
    $address = $Desk.Url + $Path + (ConvertTo-DeskQuery $Query)
    if ($null -ne $Body) {
        # A batch has 4 levels; the default of 5.1 is 2.
        $json = ConvertTo-Json -InputObject (ConvertTo-DeskValue $Body) -Depth 20 -Compress
    }
    $end = [datetime]::UtcNow.AddSeconds($Desk.Patience)
    for ($pause = 1.0; ; $pause = [math]::Min(2 * $pause, 30)) {
        # A request cannot be sent twice.
        $verb = [System.Net.Http.HttpMethod]::new($Method.ToUpperInvariant())
        $request = [System.Net.Http.HttpRequestMessage]::new($verb, $address)
        $headers = $request.Headers
        if ($Method -ne 'GET') {
            [void] $headers.TryAddWithoutValidation('Idempotency-Key', $IdempotencyKey)
        }
        if ($IfMatch) { [void] $headers.TryAddWithoutValidation('If-Match', $IfMatch) }
        if ($IfNoneMatch) { [void] $headers.TryAddWithoutValidation('If-None-Match', $IfNoneMatch) }
        if ($null -ne $Body) {
            # A misspelt field is an error.
            [void] $headers.TryAddWithoutValidation('Prefer', 'handling=strict')
            # Invoke-RestMethod of 5.1 would send ISO-8859-1.
            $utf8 = [System.Text.Encoding]::UTF8
            $request.Content = [System.Net.Http.StringContent]::new($json, $utf8, 'application/json')
        }
        $wait = $pause * (0.5 + (Get-Random -Maximum 1.0) / 2)
        $left = [math]::Max(1, ($end - [datetime]::UtcNow).TotalSeconds)
        $over = [System.Threading.CancellationTokenSource]::new([timespan]::FromSeconds($left))
        try {
            $answer = $Desk.Client.SendAsync($request, $over.Token).GetAwaiter().GetResult()
            $text = $answer.Content.ReadAsStringAsync().GetAwaiter().GetResult()
        } catch {
            $isOver = [datetime]::UtcNow.AddSeconds($wait) -gt $end
            for ($cause = $_.Exception; $cause; $cause = $cause.InnerException) {
                $reason = $cause.Message
                # A certificate that is not valid, or a port without TLS, stays so.
                if ($cause -is [System.Security.Authentication.AuthenticationException]) {
                    $isOver = $true
                    break
                }
            }
            if ($isOver) {
                $summary = "0 no_answer: There is no answer from $($Desk.Url): $reason"
                $exception = [System.InvalidOperationException]::new($summary, $_.Exception)
                $target = [pscustomobject] @{ Status = 0; Code = 'no_answer'; Message = $reason }
                throw [System.Management.Automation.ErrorRecord]::new(
                    $exception, 'no_answer', 'ConnectionError', $target)
            }
            Start-Sleep -Milliseconds ($wait * 1000)
            continue
        }
        if ($answer.IsSuccessStatusCode) { return ConvertFrom-DeskAnswer $answer $text }
        if ($answer.Headers.RetryAfter -and $answer.Headers.RetryAfter.Delta) {
            $asked = $answer.Headers.RetryAfter.Delta.TotalSeconds
            if ([int] $answer.StatusCode -eq 429 -and $answer.Headers.Contains('X-RateLimit-Reset')) {
                # The window may end sooner.
                $reset = [long] @($answer.Headers.GetValues('X-RateLimit-Reset'))[0]
                $now = [datetimeoffset]::UtcNow.ToUnixTimeSeconds()
                $asked = [math]::Min($asked, $reset - $now)
            }
            $wait = [math]::Max($wait, $asked)
        }
        $isOver = [datetime]::UtcNow.AddSeconds($wait) -gt $end
        if ($isOver -or [int] $answer.StatusCode -notin 429, 502, 503, 504) {
            throw (New-DeskError $answer $text)
        }
        Start-Sleep -Milliseconds ($wait * 1000)
    }
}

# What a body says, with moments as texts. What JSON cannot say is an error.
function ConvertTo-DeskValue($Value) {
    if ($Value -is [datetime]) { return $Value.ToUniversalTime().ToString('s') + 'Z' }
    $isNumber = $Value -is [double] -or $Value -is [single]
    if ($isNumber -and ([double]::IsNaN($Value) -or [double]::IsInfinity($Value))) {
        throw "JSON cannot say $Value."
    }
    $members = [ordered] @{}
    if ($Value -is [System.Collections.IDictionary]) {
        foreach ($name in $Value.Keys) { $members[$name] = ConvertTo-DeskValue $Value[$name] }
        return $members
    }
    # An object of an answer, such as custom.
    if ($Value -is [System.Management.Automation.PSCustomObject]) {
        foreach ($one in $Value.PSObject.Properties) {
            $members[$one.Name] = ConvertTo-DeskValue $one.Value
        }
        return $members
    }
    if ($Value -is [System.Collections.IList]) {
        # ConvertTo-Json of 5.1 can write an array as an object with a count.
        $items = [System.Collections.Generic.List[object]]::new()
        foreach ($item in $Value) { $items.Add((ConvertTo-DeskValue $item)) }
        return , $items
    }
    $Value
}

# The query string of an address.
function ConvertTo-DeskQuery([System.Collections.IDictionary] $Query) {
    $pairs = foreach ($name in $Query.Keys) {
        $value = ConvertTo-DeskValue $Query[$name]
        # Leaving it out would find every record.
        if ($null -eq $value) { $value = 'null' }
        if ($value -is [bool]) { $value = "$value".ToLowerInvariant() }
        # Two includes, for example.
        if ($value -is [System.Collections.IList]) { $value = $value -join ',' }
        [uri]::EscapeDataString($name) + '=' + [uri]::EscapeDataString("$value")
    }
    if ($pairs) { '?' + ($pairs -join '&') } else { '' }
}

function ConvertFrom-DeskAnswer($Answer, [string] $Text) {
    try {
        if ($Text) { ConvertFrom-Json -InputObject $Text }
    } catch {
        # A page of a proxy or of a sign-in, for example.
        throw (New-DeskError $Answer '')
    }
}

# One line for each fault, if there are several. The message has the first.
function Get-DeskFault($Document) {
    $operations = @($Document)
    if ($Document.operations) { $operations = @($Document.operations) }
    $faults = foreach ($failed in $operations) {
        $place = ''
        if ($null -ne $failed.operation) { $place = "operation $($failed.operation): " }
        if ($failed.errors) {
            foreach ($field in $failed.errors.PSObject.Properties) {
                "`n  $place$($field.Name): $($field.Value.message)"
            }
        } else {
            "`n  $place$($failed.error.message)"
        }
    }
    if (@($faults).Count -gt 1) { $faults -join '' }
}

function New-DeskError($Answer, [string] $Text) {
    # The answer of a proxy, for example, is not JSON.
    $document = $null
    try {
        $document = ConvertFrom-Json -InputObject $Text
    } catch {
        Write-Verbose 'The answer is not JSON.'
    }
    $code = 'unknown'
    $message = $Answer.ReasonPhrase
    if ($document.error.code) {
        $code = $document.error.code
        $message = $document.error.message
    }
    if ($Answer.IsSuccessStatusCode) { $message = 'The answer is not JSON. Check the address.' }
    elseif ([int] $Answer.StatusCode -lt 400) {
        $code = 'redirected'
        $message = "The server redirects to $($Answer.Headers.Location). Use this address."
    }
    $requestId = $null
    if ($Answer.Headers.Contains('X-Request-Id')) {
        $requestId = @($Answer.Headers.GetValues('X-Request-Id'))[0]
    }
    $status = [int] $Answer.StatusCode
    $target = [pscustomobject] @{
        Status = $status
        Code = $code
        Message = $message
        Fields = $document.errors
        Operation = $document.operation
        Operations = $document.operations
        Id = $document.error.id
        RequestId = $requestId
    }
    $summary = "$status ${code}: $message (request $requestId)$(Get-DeskFault $document)"
    $exception = [System.InvalidOperationException]::new($summary)
    [System.Management.Automation.ErrorRecord]::new($exception, $code, 'InvalidOperation', $target)
}

$public = 'Connect-Desk', 'Invoke-Desk', 'Get-DeskRecord', 'New-DeskRecord', 'Set-DeskRecord',
    'Edit-DeskRecord', 'Remove-DeskRecord'
Export-ModuleMember -Function $public
